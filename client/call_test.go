package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

func kvAnswer(r *aetherv1.KVResponse) *aetherv1.DownstreamMessage {
	return &aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Kv{Kv: r}}
}

// Answers find their callers by the request id; a failure has the code of the
// error behind it; a session that ends leaves the outcome open, and says so.
func TestCallsFindTheirAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, p := g.connect(g.options(), g.welcome)
		k := c.Keys(KeySpace{})
		type got struct {
			value []byte
			err   error
		}
		get := func(key string) (chan got, *aetherv1.KVOperation) {
			done := make(chan got, 1)
			go func() {
				v, err := k.Get(t.Context(), key)
				done <- got{v, err}
			}()
			op := p.next().GetKvOp()
			if op.GetKey() != key || op.GetRequestId() == "" {
				t.Fatalf("asked for %v", op)
			}
			return done, op
		}
		first, op1 := get("1")
		second, op2 := get("2")
		third, op3 := get("3")
		fourth, op4 := get("4")
		fifth, _ := get("5")
		p.send(kvAnswer(&aetherv1.KVResponse{Success: true, Value: []byte("two"), RequestId: op2.GetRequestId()}))
		p.send(kvAnswer(&aetherv1.KVResponse{Success: true, Value: []byte("one"), RequestId: op1.GetRequestId()}))
		p.send(kvAnswer(&aetherv1.KVResponse{RequestId: op3.GetRequestId()}))
		p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Error{Error: &aetherv1.ErrorResponse{
			Code: "KV_ERROR", Message: "full", RequestId: op3.GetRequestId(), Details: map[string]string{"code": "ERR_QUOTA_EXCEEDED"},
		}}})
		p.send(kvAnswer(&aetherv1.KVResponse{RequestId: op4.GetRequestId()})) // and nobody says why
		p.send(kvAnswer(&aetherv1.KVResponse{Success: true, RequestId: "of nobody"}))
		if r := expect(t, first); string(r.value) != "one" || r.err != nil {
			t.Errorf("the first: %q, %v", r.value, r.err)
		}
		if r := expect(t, second); string(r.value) != "two" || r.err != nil {
			t.Errorf("the second: %q, %v", r.value, r.err)
		}
		code := func(err error, want Code) {
			t.Helper()
			if e, ok := errors.AsType[*Error](err); !ok || e.Code != want {
				t.Errorf("got %v, want %s", err, want)
			}
		}
		code(expect(t, third).err, CodeQuotaExceeded)
		code(expect(t, fourth).err, CodeInternal)
		p.finish(errors.New("gone"))
		code(expect(t, fifth).err, CodeUnknownOutcome)
		p = g.welcome()
		synctest.Wait() // it is connected
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := k.Get(ctx, "6")
		code(err, CodeUnknownOutcome)
		_ = p.next()
		code(k.Put(t.Context(), "7", nil, -time.Second), CodeInvalidArgument)
		_, err = k.Add(t.Context(), "7", 0, 0)
		code(err, CodeInvalidArgument)
		g.close(c, p)
		_, err = k.Get(t.Context(), "8")
		code(err, CodeClosed)
	})
}
