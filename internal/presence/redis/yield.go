package redis

import (
	"context"
	"crypto/rand"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
)

// Taking over from a session of another gateway (delivery rule L4) is a
// request and an answer on the channels of the two. Both may be lost: the
// waiting is bounded, and what counts is decided by the script that takes.
const (
	kindYield   = "yield"   // request id, session, the id that it is resumed by
	kindYielded = "yielded" // request id, whether exact, watermark

	// maxYields bounds how many sessions are asked at once; others are taken
	// from without being asked.
	maxYields = 256
	// answerTime is what the answer may take on its way.
	answerTime = 50 * time.Millisecond
	// yieldHold is how long a session that has yielded keeps its names for the
	// one that asked.
	yieldHold = 2 * time.Second
)

type yielded struct {
	watermark []byte
	exact     bool
}

func newID() string { return strings.ToLower(rand.Text()) }

// ask asks a gateway to stop a session, for at most [presence.HandOver].
func (p *Presence) ask(ctx context.Context, boot, session, resume string) yielded {
	ctx, cancel := context.WithTimeout(ctx, presence.HandOver)
	defer cancel()
	if boot == p.self.ID {
		return p.yield(ctx, session, resume)
	}
	id := newID()
	answer := make(chan yielded, 1)
	p.mu.Lock()
	p.asked[id] = answer
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.asked, id)
	}()
	message := frame(p.self.ID, control+kindYield, appendField(appendField(appendField(nil, id), session), resume))
	if n, err := p.client.Publish(ctx, p.channel(boot), message).Result(); err != nil || n == 0 {
		return yielded{} // it does not listen
	}
	select {
	case y := <-answer:
		return y
	case <-ctx.Done():
		return yielded{}
	}
}

// yield stops an own session for one that takes over by the id resume. A
// session whose first frame has come does not stop for its predecessor's id,
// also while Redis does not know of the frame (delivery rule L5): it is told
// now, and its script then refuses.
func (p *Presence) yield(ctx context.Context, session, resume string) yielded {
	p.mu.Lock()
	h, handler := p.own[session], p.handler
	if h == nil {
		p.mu.Unlock()
		return yielded{}
	}
	if resume != session && !slices.Contains(h.preds, resume) && !h.yielding(p.o.now()) {
		incarnation := p.incarnation
		p.mu.Unlock()
		if _, err := p.run(ctx, confirmScript, incarnation, session, decimal(h.lease.Epoch)); err != nil {
			p.log.Warn("presence: a first frame could not be confirmed", "error", p.fault(err))
		}
		return yielded{}
	}
	h.yieldUntil = p.o.now().Add(yieldHold)
	done := yielded{watermark: h.watermark, exact: h.handed}
	p.mu.Unlock()
	if done.exact {
		return done
	}
	if handler == nil {
		return yielded{}
	}
	watermark, exact := handler.Yield(ctx, session)
	if !exact || len(watermark) > presence.MaxWatermark || h.lease.Hold.Fence().Fenced() {
		return yielded{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	h.handed, h.watermark, h.dirty = true, watermark, false
	return yielded{watermark: watermark, exact: true}
}

// onControl handles what other gateways ask. It does not block.
func (p *Presence) onControl(from, kind string, payload []byte) {
	switch kind {
	case kindYield:
		list, err := fields(string(payload), 3)
		if err != nil {
			return
		}
		select {
		case p.yields <- struct{}{}:
			p.wg.Go(func() {
				defer func() { <-p.yields }()
				p.answer(from, list[0], list[1], list[2])
			})
		default:
		}
	case kindYielded:
		list, err := fields(string(payload), 3)
		if err != nil {
			return
		}
		p.mu.RLock()
		answer := p.asked[list[0]]
		p.mu.RUnlock()
		if answer != nil {
			select {
			case answer <- yielded{watermark: []byte(list[2]), exact: list[1] == "true"}:
			default: // answered twice
			}
		}
	}
}

func (p *Presence) answer(from, id, session, resume string) {
	limited, cancel := context.WithTimeout(p.ctx, presence.HandOver-answerTime)
	y := p.yield(limited, session, resume)
	cancel()
	ctx, cancel := context.WithTimeout(p.ctx, callTimeout)
	defer cancel()
	if y.exact {
		p.record(ctx, session, y.watermark)
	}
	payload := appendField(appendField(appendField(nil, id), strconv.FormatBool(y.exact)), string(y.watermark))
	if err := p.client.Publish(ctx, p.channel(from), frame(p.self.ID, control+kindYielded, payload)).Err(); err != nil {
		p.log.Warn("presence: the watermark of a session that was taken over could not be sent", "error", p.fault(err))
	}
}

// record writes the exact watermark into the lease, where it is found if the
// answer is lost.
func (p *Presence) record(ctx context.Context, session string, watermark []byte) {
	p.mu.RLock()
	h, incarnation := p.own[session], p.incarnation
	p.mu.RUnlock()
	if h == nil {
		return
	}
	if _, err := p.run(ctx, yieldScript, incarnation, session, decimal(h.lease.Epoch), watermark); err != nil {
		p.log.Warn("presence: a watermark could not be written", "error", p.fault(err))
	}
}
