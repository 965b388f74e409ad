package client

import (
	"context"
	"strings"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Checkpoint is state that a principal has saved for its next session.
type Checkpoint struct {
	Data []byte
	// SavedAt is zero if there is no such checkpoint.
	SavedAt time.Time
}

// DefaultTTL leaves it to the gateway how long a checkpoint is kept.
const DefaultTTL = time.Duration(-1)

// SaveCheckpoint saves state under a key, for this identity alone. A ttl of 0 is
// without end; see also [DefaultTTL]. Limits and errors are those of [Keys].
func (c *Client) SaveCheckpoint(ctx context.Context, key string, data []byte, ttl time.Duration) error {
	op := &aetherv1.CheckpointOperation{Op: aetherv1.CheckpointOperation_OP_TYPE_SAVE, Key: key, Data: data, Ttl: -1}
	if ttl != DefaultTTL {
		var e *Error
		if op.Ttl, e = seconds(ttl); e != nil {
			return e
		}
	}
	_, err := c.checkpoint(ctx, op)
	return err
}

// LoadCheckpoint returns what was saved under a key, to whichever gateway; an
// empty one if there is nothing.
func (c *Client) LoadCheckpoint(ctx context.Context, key string) (Checkpoint, error) {
	r, err := c.checkpoint(ctx, &aetherv1.CheckpointOperation{Op: aetherv1.CheckpointOperation_OP_TYPE_LOAD, Key: key})
	cp := Checkpoint{Data: r.GetData()}
	if s := r.GetSavedAt(); s > 0 {
		cp.SavedAt = time.Unix(s, 0)
	}
	return cp, err
}

// DeleteCheckpoint removes what was saved under a key, if there is anything.
func (c *Client) DeleteCheckpoint(ctx context.Context, key string) error {
	_, err := c.checkpoint(ctx, &aetherv1.CheckpointOperation{Op: aetherv1.CheckpointOperation_OP_TYPE_DELETE, Key: key})
	return err
}

// Checkpoints returns the keys that begin with prefix under which something was
// saved, in the order of their bytes. Of more than 10,000 it fails.
func (c *Client) Checkpoints(ctx context.Context, prefix string) ([]string, error) {
	r, err := c.checkpoint(ctx, &aetherv1.CheckpointOperation{Op: aetherv1.CheckpointOperation_OP_TYPE_LIST, Key: prefix})
	return r.GetKeys(), err
}

func (c *Client) checkpoint(ctx context.Context, op *aetherv1.CheckpointOperation) (*aetherv1.CheckpointResponse, error) {
	frame, err := c.call(ctx, func(id string) *aetherv1.UpstreamMessage {
		op.RequestId = id
		return &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_CheckpointOp{CheckpointOp: op}}
	}, nil)
	if err != nil {
		return nil, err
	}
	r := frame.GetCheckpoint()
	if r.GetSuccess() {
		return r, nil
	}
	// The text begins with the code.
	code, text, ok := strings.Cut(r.GetError(), ": ")
	if !ok {
		code, text = string(CodeInternal), r.GetError()
	}
	return nil, &Error{Code: Code(code), Message: text, Retryable: Code(code) == CodeUnavailable || Code(code) == CodeRateLimited}
}
