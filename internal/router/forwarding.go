package router

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/wireerr"
	"github.com/aether-gateway/gateway/internal/wiring"
)

// Metadata of a forwarded message: who sent it first, how often it was forwarded,
// and by which route last. Clients cannot set them.
const (
	metaSource = "aether-source"
	metaHops   = "aether-hops"
	metaRoute  = "aether-route"
)

// forwardID is the message id of what a route makes of a message: the same each
// time, on every gateway, so that it is stored once.
func forwardID(route string, v *envelope.View) string {
	h := sha256.New()
	var length []byte
	for _, part := range [][]byte{[]byte(route), v.Source, v.Topic, v.MessageID} {
		length = strconv.AppendInt(length[:0], int64(len(part)), 10)
		h.Write(append(length, ':'))
		h.Write(part)
	}
	return "fw-" + hex.EncodeToString(h.Sum(nil)[:16])
}

// batch is several messages on their way.
type batch struct {
	base    uint64        // the number of the first
	settled chan struct{} // closed when all outcomes are known

	mu   sync.Mutex // a leaf
	left int
	errs []*wireerr.Error
	told []bool
}

func newBatch(base uint64, n int) *batch {
	return &batch{base: base, settled: make(chan struct{}), left: n, errs: make([]*wireerr.Error, n), told: make([]bool, n)}
}

// settle records an outcome; nil is stored. Of two the first counts.
func (b *batch) settle(i int, err *wireerr.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.told[i] {
		return
	}
	b.told[i], b.errs[i] = true, err
	if b.left--; b.left == 0 {
		close(b.settled)
	}
}

func (b *batch) outcome(i int) *wireerr.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.errs[i]
}

// begin makes the batch to which answers belong from now on. Those to earlier
// ones, for which nobody waits any more, are dropped.
func (fd *feed) begin(n int) *batch {
	fd.answers.Lock()
	defer fd.answers.Unlock()
	fd.batch = newBatch(fd.number, n)
	fd.number += uint64(n)
	return fd.batch
}

// told gets the outcome of a message by its number. It is called with a
// partition's lock held, perhaps.
func (fd *feed) told(requestID string, err *wireerr.Error) {
	number, parseErr := strconv.ParseUint(requestID, 10, 64)
	fd.answers.Lock()
	b := fd.batch
	fd.answers.Unlock()
	if parseErr == nil && b != nil && number >= b.base && number-b.base < uint64(len(b.errs)) {
		b.settle(int(number-b.base), err)
	}
}

// publish forwards one message, which is number i of a batch.
func (fd *feed) publish(b *batch, i int, m *forwarding) {
	owner := &fd.f.owner[m.route]
	e, skip, err := fd.f.r.forwarded(&fd.f.routes[m.route], owner, &m.view)
	if skip || err != nil {
		b.settle(i, err)
		return
	}
	name := owner.Name()
	s := fd.senders[name]
	if s == nil {
		s = fd.f.r.NewSender(owner, name, fd.lease, nil, nil)
		s.told = fd.told
		fd.senders[name] = s
	}
	s.span = fd.f.r.tracer.Start("aether.forward", e.Metadata)
	err = s.publish(strconv.FormatUint(b.base+uint64(i), 10), e, nil, nil)
	s.traced(err)
	if err != nil {
		b.settle(i, err)
	}
}

// forwarded makes the envelope of a message that a route takes, or refuses it.
// skip says that there is nothing to forward any more.
func (r *Router) forwarded(route *wiring.Route, owner *acl.Principal, v *envelope.View) (e *envelope.Envelope, skip bool, refused *wireerr.Error) {
	if v.Expired(r.nowMS()) || r.forgotten(v) {
		return nil, true, nil
	}
	hops, source := 0, string(v.Source)
	metadata := v.Metadata()
	if before, ok := metadata[metaSource]; ok {
		source = before
		hops, _ = strconv.Atoi(metadata[metaHops])
	}
	if hops >= wiring.MaxHops {
		return nil, false, wireerr.New(wireerr.PermissionDenied, "the message has been forwarded %d times, which is the limit", hops)
	}
	if d := r.Decide(owner, route.To); !d.Allowed {
		return nil, false, wireerr.New(wireerr.PermissionDenied, "%s", d.Message(owner, route.To))
	}
	from, err := address.Parse(string(v.Topic))
	if err != nil {
		return nil, false, wireerr.New(wireerr.InvalidTopic, "%v", err)
	}
	// The operator who declares the route lets it read; a rule may still deny it.
	if r.rules.Effect(owner, acl.ActionObserve, from) == acl.Deny {
		return nil, false, wireerr.New(wireerr.PermissionDenied, "a rule denies observing %s", from)
	}
	if metadata == nil {
		metadata = map[string]string{}
	}
	metadata[metaSource], metadata[metaHops], metadata[metaRoute] = source, strconv.Itoa(hops+1), route.Name
	e = &envelope.Envelope{
		Source: owner.Name(), Payload: v.Payload, Type: v.Type, TimestampMS: r.nowMS(), Metadata: metadata, Workspace: route.To.Workspace(),
		MessageID: forwardID(route.Name, v), Subject: string(v.Subject), Topic: route.To.String(), Origin: r.origin, ExpiresAtMS: v.ExpiresAtMS,
	}
	if err := r.checkQuota(e.Workspace); err != nil {
		return nil, false, err
	}
	era, name, exists := r.spaces.stamp(route.To, e.Workspace)
	if !exists {
		return nil, false, wireerr.New(wireerr.NotFound, "%s", NoWorkspace(name))
	}
	e.Era = era
	return e, false, nil
}

// forgotten reports whether a message is of a workspace that was deleted since.
func (r *Router) forgotten(v *envelope.View) bool {
	return len(v.Workspace) > 0 && r.spaces.over(v.Workspace, v.Era)
}

// refusalLog tells of refusals, of each route and reason at most once a minute.
type refusalLog struct {
	log *slog.Logger

	mu   sync.Mutex
	last map[[2]string]*refusalCount // as many as there are routes and codes
}

type refusalCount struct {
	at    time.Time
	since uint64
}

func (l *refusalLog) refused(route, code, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last = map[[2]string]*refusalCount{}
	}
	c := l.last[[2]string{route, code}]
	if c == nil {
		c = &refusalCount{}
		l.last[[2]string{route, code}] = c
	}
	c.since++
	if now := time.Now(); now.Sub(c.at) >= time.Minute {
		l.log.Warn("messages are not forwarded", "route", route, "code", code, "reason", why, "messages", c.since)
		c.at, c.since = now, 0
	}
}
