package router

import (
	"context"
	"sync"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Authorities decides on messages that are sent in another's name (gateway.md
// 17). It is safe for concurrent use.
type Authorities interface {
	// Authorize decides on a message that its sender, in a session, may send
	// itself, from memory and at once. workspace is what it is stamped with.
	// onBehalf is for whom it is sent, an encoded PrincipalRef that is not
	// changed any more; nil if the sender acts for itself. unknown says of an
	// error that it may be one only because what is in memory is not up to date.
	Authorize(p *acl.Principal, session string, a *aetherv1.AuthorizationContext, to address.Address, workspace string) (onBehalf []byte, unknown bool, err *wireerr.Error)
	// Look brings what is in memory up to date with the call. The error is
	// that of a store which does not answer.
	Look(ctx context.Context) error
}

// ActUnder sets who decides on messages that are sent in another's name; without
// it they are refused. It is called before the first sender is made.
func (r *Router) ActUnder(a Authorities) { r.authorities = a }

// acting is a send in another's name of which this gateway cannot say yet
// whether it is allowed: the grant may be of a moment ago, by another gateway.
// It waits in the line of its sender and address while that is looked up.
type acting struct {
	look *grantLook
	// principal is the sender as it was when it sent.
	principal acl.Principal
	context   *aetherv1.AuthorizationContext
	to        address.Address
	workspace string
}

// authorize decides whether the sender acts for another, and stamps for whom.
// What it returns has to be waited for.
func (s *Sender) authorize(msg *aetherv1.SendMessage, to address.Address, e *envelope.Envelope) (*acting, *wireerr.Error) {
	a := msg.GetAuthorization()
	if a == nil {
		return nil, nil
	}
	if s.r.authorities == nil {
		if a.GetGrantId() == "" && a.GetSubject() == nil {
			return nil, nil
		}
		// Acting for somebody else must never be taken for acting for oneself.
		return nil, wireerr.New(wireerr.NotImplemented, "authority grants are not supported")
	}
	onBehalf, unknown, err := s.r.authorities.Authorize(s.principal, s.lease.SessionID, a, to, e.Workspace)
	if err != nil && !unknown {
		return nil, err
	}
	e.OnBehalf = onBehalf
	if err == nil {
		return nil, nil
	}
	return &acting{
		look: s.lookUp(), principal: *s.principal, to: to, workspace: e.Workspace,
		// Of what the client sent no more is kept than is asked.
		context: &aetherv1.AuthorizationContext{AuthorityMode: a.GetAuthorityMode(), Subject: a.GetSubject(), GrantId: a.GetGrantId()},
	}, nil
}

// act decides anew on a send whose grant has been looked up. The partition's lock
// is held.
func (s *Sender) act(d *draft) *wireerr.Error {
	a := d.acting
	d.acting = nil
	if err := a.look.outcome(); err != nil {
		return wireerr.New(wireerr.Unavailable, "the grant could not be looked up; the message is not stored").Because(err)
	}
	onBehalf, _, err := s.r.authorities.Authorize(&a.principal, s.lease.SessionID, a.context, a.to, a.workspace)
	if err != nil {
		if s.refusedLater != nil {
			s.refusedLater(d.envelope.Topic, err)
		}
		return err
	}
	d.envelope.OnBehalf = onBehalf
	if d.byClient {
		d.digest = digestOf(&d.envelope)
	}
	return nil
}

// OnRefused sets what is told of sends that were refused after Send had taken
// them, because of who they were to act for. It is called with a lock held and
// must not block. It is set before the first Send.
func (s *Sender) OnRefused(f func(target string, err *wireerr.Error)) { s.refusedLater = f }

// looking are the looks of a sender for grants: one at a time, and one behind it
// for all that comes meanwhile. So a client that names grants at random has one
// goroutine.
type looking struct {
	mu   sync.Mutex
	next *grantLook // joined by all who come before it begins
	busy bool
}

// grantLook is one look. Sends wait for it at a gate in each partition.
type grantLook struct {
	mu    sync.Mutex // a leaf
	done  bool
	err   error
	gates map[*partition]*gate
}

// lookUp returns a look that begins after the call.
func (s *Sender) lookUp() *grantLook {
	s.looking.mu.Lock()
	defer s.looking.mu.Unlock()
	if s.looking.next == nil {
		s.looking.next = &grantLook{gates: map[*partition]*gate{}}
	}
	l := s.looking.next
	if !s.looking.busy {
		if s.looking.busy = s.r.spawn(s.look); !s.looking.busy {
			s.looking.next = nil
			l.done, l.err = true, context.Canceled // nobody waits yet
		}
	}
	return l
}

func (s *Sender) look(ctx context.Context) {
	for {
		s.looking.mu.Lock()
		l := s.looking.next
		s.looking.next = nil
		if l == nil {
			s.looking.busy = false
			s.looking.mu.Unlock()
			return
		}
		s.looking.mu.Unlock()
		within, cancel := context.WithTimeout(ctx, s.r.publishTimeout/2)
		l.finish(s.r.authorities.Look(within))
		cancel()
	}
}

// finish lets those go on that wait.
func (l *grantLook) finish(err error) {
	l.mu.Lock()
	l.done, l.err = true, err
	gates := l.gates
	l.gates = nil
	l.mu.Unlock()
	for p, g := range gates {
		p.mu.Lock()
		p.open(g)
		p.mu.Unlock()
	}
}

func (l *grantLook) outcome() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// gate returns where a send waits for the look, nil if it has been made. The
// partition's lock is held.
func (l *grantLook) gate(p *partition) *gate {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done {
		return nil
	}
	g := l.gates[p]
	if g == nil {
		g = new(gate)
		l.gates[p] = g
	}
	return g
}
