package client

import (
	"context"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// rawFrame is a frame of [Client.SendFrame]; the writer answers once.
type rawFrame struct {
	frame *aetherv1.UpstreamMessage
	done  chan error // capacity 1
}

// sendFrame hands a frame to the writer and waits until it is written.
func (l *link) sendFrame(ctx context.Context, frame *aetherv1.UpstreamMessage) error {
	f := &rawFrame{frame: frame, done: make(chan error, 1)}
	select {
	case l.raw <- f:
	case <-l.ctx.Done():
		return l.failure(l.ctx.Err())
	case <-ctx.Done():
		return gaveUp("the frame was not written", ctx.Err())
	}
	select {
	case err := <-f.done:
		return err
	case <-l.ctx.Done():
		return l.failure(l.ctx.Err())
	}
}

// kick wakes the writer.
func (l *link) kick() {
	select {
	case l.wakeup <- struct{}{}:
	default:
	}
}

// write is the stream's only writer. Acknowledgements go before sends. After
// leave it says the last ones and half-closes.
func (l *link) write(leave <-chan struct{}) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait, err := l.writeAll(false)
		if err != nil {
			return // the receive loop learns the reason
		}
		if wait > 0 {
			timer.Reset(wait)
		}
		select {
		case <-l.wakeup:
		case <-timer.C:
		case f := <-l.raw:
			f.done <- l.stream.Send(f.frame)
		case <-leave:
			l.leave()
			return
		case <-l.ctx.Done():
			return
		}
	}
}

// writeAll writes what there is and says when there will be more.
func (l *link) writeAll(last bool) (time.Duration, error) {
	for {
		select {
		case f := <-l.raw:
			f.done <- l.stream.Send(f.frame)
		default:
		}
		acks, wait := l.c.recv.flush(l, last)
		for _, a := range acks {
			if err := l.stream.Send(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Ack{Ack: a}}); err != nil {
				return 0, err
			}
		}
		if l.draining.Load() {
			return wait, nil
		}
		o := l.c.sends.next(l)
		if o == nil {
			return wait, nil
		}
		if err := l.stream.Send(o.frame); err != nil {
			return 0, err
		}
		l.c.sends.written(l, o)
	}
}

func (l *link) leave() {
	if _, err := l.writeAll(true); err != nil {
		return
	}
	if !l.session.Extended && l.c.recv.waiting() {
		// Without acknowledgements an orderly end would say that these were
		// received (delivery table A).
		l.cancel(broken("closed with messages unread"))
		return
	}
	if err := l.stream.CloseSend(); err != nil {
		return
	}
	if pause(l.ctx, leaveFor) {
		l.cancel(broken("the gateway did not end the stream within %s", leaveFor))
	}
}
