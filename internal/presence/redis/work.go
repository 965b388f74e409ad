package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aether-gateway/gateway/internal/claims"
)

var _ claims.Claims = (*Presence)(nil)

// Do implements [claims.Claims]: one script call for each address, all in one
// round trip.
func (p *Presence) Do(ctx context.Context, rounds []*claims.Round) error {
	p.mu.RLock()
	err, incarnation := p.ready(), p.incarnation
	p.mu.RUnlock()
	if err != nil {
		return fmt.Errorf("%w: %w", claims.ErrUnavailable, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var asked []*claims.Round
	for _, r := range rounds {
		if r.Enter != claims.Resume && r.Incarnation != incarnation && (r.Enter != claims.Begin || r.Incarnation != "") {
			r.Answer = claims.Answer{Status: claims.Anew, Incarnation: incarnation}
			continue
		}
		asked = append(asked, r)
	}
	if len(asked) == 0 {
		return nil
	}
	list, err := p.rounds(ctx, incarnation, asked)
	if err != nil && goredis.HasErrorPrefix(err, "NOSCRIPT") {
		// The server was restarted or flushed; nothing has run.
		if err = workScript.Load(ctx, p.client).Err(); err == nil {
			list, err = p.rounds(ctx, incarnation, asked)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", claims.ErrUnavailable, p.fault(err))
	}
	for i, r := range asked {
		if err := p.answered(r, list[i], incarnation); err != nil {
			return fmt.Errorf("%w: %w", claims.ErrUnavailable, err)
		}
	}
	return nil
}

func (p *Presence) rounds(ctx context.Context, incarnation string, rounds []*claims.Round) ([]reply, error) {
	pipe := p.client.Pipeline()
	cmds := make([]*goredis.Cmd, len(rounds))
	for i, r := range rounds {
		cmds[i] = workScript.EvalSha(ctx, pipe, []string{p.base}, p.args(incarnation, workArgs(r))...)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	list := make([]reply, len(cmds))
	for i, cmd := range cmds {
		var err error
		if list[i], err = parseReply(cmd.Result()); err != nil {
			return nil, err
		}
	}
	return list, nil
}

var enterNames = [...]string{claims.Stay: "stay", claims.Begin: "begin", claims.Resume: "resume", claims.Reset: "reset"}

func workArgs(r *claims.Round) []any {
	left := r.Left
	if r.Enter == claims.Reset {
		left = int64(r.Resets)
	}
	args := make([]any, 0, 18+len(r.Done)+2*len(r.Free)+2*len(r.Own)+3*len(r.Orphans)+len(r.Candidates))
	args = append(args, r.Topic, decimal(r.Serial), enterNames[r.Enter], digit(r.Listening), r.Tail, r.Cursor, left, r.Back,
		r.Max, r.MaxFree, copying(r), claims.MaxOpen, claims.MaxCopy,
		len(r.Done), len(r.Free), len(r.Own), len(r.Orphans), len(r.Candidates))
	for _, position := range r.Done {
		args = append(args, decimal(position))
	}
	for _, list := range [][]claims.Claim{r.Free, r.Own} {
		for _, c := range list {
			args = append(args, decimal(c.Position), int(c.Attempts))
		}
	}
	for _, o := range r.Orphans {
		args = append(args, decimal(o.Position), int(o.Attempts), o.Owner)
	}
	for _, position := range r.Candidates {
		args = append(args, decimal(position))
	}
	return args
}

func copying(r *claims.Round) int {
	switch {
	case r.Recall:
		return 2
	case r.Copy:
		return 1
	}
	return 0
}

func digit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

var errNoHeartbeat = errors.New("Redis knows no heartbeat of this gateway, or has lost its state")

// answered fills in the answer to a round.
func (p *Presence) answered(r *claims.Round, got reply, incarnation string) error {
	r.Answer = claims.Answer{Incarnation: incarnation}
	a := &r.Answer
	switch got.status {
	case statusOK:
	case statusNew:
		a.Status = claims.Anew
		return nil
	case statusLate:
		a.Status = claims.Late
		return nil
	case statusOther, statusDead:
		p.hurry()
		return errNoHeartbeat
	default:
		return errReply
	}
	a.Wait = time.Duration(got.number(0)) * time.Millisecond
	floor, err := strconv.ParseInt(got.text(1), 10, 64)
	a.Floor = floor
	a.Others, a.Free = int(got.number(2)), int(got.number(3))
	granted, taken := got.list(4), got.list(5)
	copied := got.number(6)
	a.Recalled, a.Complete = copied > 0, copied == 2
	table := got.list(7)
	a.Peers = got.list(8)
	a.Resets = int(got.number(9))
	if err != nil || got.bad || len(taken)%2 != 0 || len(table)%2 != 0 {
		return errReply
	}
	for _, text := range granted {
		position, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return errReply
		}
		a.Granted = append(a.Granted, position)
	}
	for ; len(taken) > 0; taken = taken[2:] {
		c, err := parseClaim(taken[0], taken[1])
		if err != nil {
			return err
		}
		a.Taken = append(a.Taken, c)
	}
	for ; len(table) > 0; table = table[2:] {
		attempts, owner, _ := strings.Cut(table[1], ":")
		c, err := parseClaim(table[0], attempts)
		if err != nil {
			return err
		}
		a.Table = append(a.Table, claims.Owned{Claim: c, Owner: owner})
	}
	return nil
}

func parseClaim(position, attempts string) (claims.Claim, error) {
	at, err := strconv.ParseUint(position, 10, 64)
	n, err2 := strconv.ParseUint(attempts, 10, 8)
	if err != nil || err2 != nil {
		return claims.Claim{}, errReply
	}
	return claims.Claim{Position: at, Attempts: uint8(n)}, nil
}

// swept is how many lost messages one call of [Presence.Sweep] returns at
// most.
const swept = 1000

// Sweep implements [claims.Claims].
func (p *Presence) Sweep(ctx context.Context) ([]claims.Lost, error) {
	p.mu.RLock()
	err, incarnation := p.ready(), p.incarnation
	p.mu.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", claims.ErrUnavailable, err)
	}
	got, err := p.run(ctx, sweepScript, incarnation, claims.Keep.Milliseconds(), swept)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", claims.ErrUnavailable, p.fault(err))
	}
	if got.status != statusOK {
		return nil, fmt.Errorf("%w: %w", claims.ErrUnavailable, errNoHeartbeat)
	}
	told := got.list(0)
	if got.bad || len(told)%3 != 0 {
		return nil, errReply
	}
	var lost []claims.Lost
	for ; len(told) > 0; told = told[3:] {
		c, err := parseClaim(told[1], told[2])
		if err != nil {
			return nil, err
		}
		lost = append(lost, claims.Lost{Topic: told[0], Claim: c})
	}
	return lost, nil
}
