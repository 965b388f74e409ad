package client

import (
	"errors"
	"maps"
	"sync/atomic"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// renewals are a link's requests to go on with a new credential: one at a time.
type renewals struct {
	running atomic.Bool
	asked   atomic.Bool       // a request has no answer yet
	answers chan error        // capacity 1
	current map[string]string // what the session goes on; of the one that renews
}

func newRenewals(current map[string]string) *renewals {
	return &renewals{answers: make(chan error, 1), current: current}
}

// begin reports whether nobody renews yet; then the caller does.
func (r *renewals) begin() bool { return r.running.CompareAndSwap(false, true) }

// answer hands on what the gateway said to the request, if there is one.
func (r *renewals) answer(err error) {
	if r.asked.Swap(false) {
		r.answers <- err
	}
}

// refused takes the refusal of a new credential, which has no request id.
func (r *renewals) refused(e *Error) bool {
	about := e.Details["frame"] == "reauthenticate" || len(e.Details) == 0 && e.Code == CodeUnauthenticated
	if !about || !r.asked.Load() {
		return false
	}
	r.answer(e)
	return true
}

// Renewal.
const (
	// renewalAnswer is how long the gateway may take to check a credential.
	renewalAnswer = 15 * time.Second
	// leastRenewal and mostRenewal bound the pauses between attempts, of which
	// some must fit into what is left of the old credential.
	leastRenewal = 50 * time.Millisecond
	mostRenewal  = time.Minute
	renewalShare = 8
)

var errSameToken = errors.New("the TokenSource returned the token that is about to expire")

// renew fetches a new credential and hands it to the gateway, again and again
// until the gateway has taken one or the session ends.
func (l *link) renew(before time.Time) {
	defer l.renewals.running.Store(false)
	pauses := backoff{least: min(max(time.Until(before)/renewalShare, leastRenewal), time.Second)}
	for {
		err := l.renewOnce()
		if err == nil || l.ctx.Err() != nil {
			return
		}
		l.c.opts.Logger.Warn("no new credential", "identity", l.c.opts.Identity.String(), "error", err)
		pauses.most = min(max(time.Until(before)/2, pauses.least), mostRenewal)
		hint := time.Duration(0)
		if e, ok := errors.AsType[*Error](err); ok {
			hint = e.RetryAfter
		}
		if !pause(l.ctx, pauses.next(hint)) {
			return
		}
	}
}

func (l *link) renewOnce() error {
	credential, err := l.c.credential(l.ctx)
	if err != nil {
		return err
	}
	if maps.Equal(credential, l.renewals.current) {
		return errSameToken
	}
	l.renewals.asked.Store(true)
	err = l.sendFrame(l.ctx, &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Reauthenticate{
		Reauthenticate: &aetherv1.Reauthenticate{Credentials: credential},
	}})
	if err != nil {
		return err
	}
	timeout := time.NewTimer(renewalAnswer)
	defer timeout.Stop()
	select {
	case err := <-l.renewals.answers:
		if err == nil {
			l.renewals.current = credential
		}
		return err
	case <-timeout.C:
		if l.renewals.asked.Swap(false) {
			return broken("the gateway did not answer to a new credential within %s", renewalAnswer)
		}
		return <-l.renewals.answers
	case <-l.ctx.Done():
		return l.failure(l.ctx.Err())
	}
}
