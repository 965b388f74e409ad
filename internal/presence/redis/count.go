package redis

import (
	"context"
	"fmt"
	"strconv"

	"github.com/aether-gateway/gateway/internal/presence"
)

var _ presence.Counters = (*Presence)(nil)

// countChunk is how many keys one script call handles, so that no call holds
// Redis up.
const countChunk = 100

// Exchange implements [presence.Counters]: one script call for every hundred
// keys.
func (p *Presence) Exchange(ctx context.Context, usages []*presence.Usage) error {
	for _, u := range usages {
		if err := presence.CheckUsage(u); err != nil {
			return err
		}
	}
	p.mu.RLock()
	err, incarnation := p.ready(), p.incarnation
	p.mu.RUnlock()
	if err != nil {
		return fmt.Errorf("%w: %w", presence.ErrCounters, err)
	}
	for len(usages) > 0 {
		n := min(len(usages), countChunk)
		if err := p.countSome(ctx, incarnation, usages[:n]); err != nil {
			return fmt.Errorf("%w: %w", presence.ErrCounters, err)
		}
		usages = usages[n:]
	}
	return nil
}

// countSome makes one script call.
func (p *Presence) countSome(ctx context.Context, incarnation string, usages []*presence.Usage) error {
	args := make([]any, 0, 3+13*len(usages))
	args = append(args, presence.CounterFresh.Milliseconds(), presence.CounterKept.Milliseconds(), len(usages))
	for _, u := range usages {
		args = append(args, u.Key, u.Holders, digit(u.Leaving))
		for _, m := range u.Measures {
			args = append(args, m.Rate, m.Burst, m.Used, m.Told, m.Wanted)
		}
	}
	r, err := p.run(ctx, countScript, incarnation, args...)
	switch {
	case err != nil:
		return p.fault(err)
	case r.status == statusOther || r.status == statusDead:
		p.hurry()
		return errNoHeartbeat
	case r.status != statusOK || len(r.values) != 3*len(usages):
		return errReply
	}
	for i, u := range usages {
		for m := range u.Measures {
			u.Measures[m].Left = r.decimal(3*i + m)
		}
		others := r.list(3*i + 2)
		if len(others)%3 != 0 {
			return errReply
		}
		u.Others = u.Others[:0]
		for ; len(others) > 0; others = others[3:] {
			var o presence.OtherUsage
			var errs [3]error
			o.Wanted[0], errs[0] = strconv.ParseFloat(others[0], 64)
			o.Wanted[1], errs[1] = strconv.ParseFloat(others[1], 64)
			o.Holders, errs[2] = strconv.Atoi(others[2])
			r.bad = r.bad || errs != [3]error{}
			u.Others = append(u.Others, o)
		}
	}
	return r.err()
}

// decimal is a number that Redis would have cut to a whole one.
func (r *reply) decimal(i int) float64 {
	v, err := strconv.ParseFloat(r.text(i), 64)
	r.bad = r.bad || err != nil
	return v
}
