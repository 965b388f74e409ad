package router

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
)

// KindVotes is the question by which gateways tell each other votes; see
// [Router.TakeVotes].
const KindVotes = "track.votes"

const (
	// maxVotesAtOnce and maxVoteBytes bound one question.
	maxVotesAtOnce = 512
	maxVoteBytes   = 32 << 10
	// maxVoteMail bounds what waits for one gateway. Past it a report is dropped,
	// and its poll runs out of time.
	maxVoteMail = 1 << 16
	// maxVoteReason bounds the reason of a vote, in bytes.
	maxVoteReason = 256
	voteRetry     = 200 * time.Millisecond
)

// voteState is how far a gateway's part of a poll is.
type voteState uint8

const (
	voteOpen voteState = iota
	voteAcked
	voteNacked
	voteGone // who could vote has left, or fallen behind
	voteStates
)

// report is what a gateway says of a poll: how many may vote there, and the outcome
// of its part. A later one says all that an earlier one did.
type report struct {
	eligible, acked uint32
	state           voteState
	reason          string
}

// then returns what two reports say together.
func (r report) then(next report) report {
	if r.state == voteAcked || r.state == voteNacked || next.state == voteOpen {
		next.state, next.reason = r.state, r.reason
	}
	next.eligible, next.acked = max(r.eligible, next.eligible), max(r.acked, next.acked)
	return next
}

// Peers asks other gateways, by their instance ids, until they answer or a second
// or two have passed. Safe for concurrent use.
type Peers interface {
	Ask(ctx context.Context, to, kind string, question []byte) ([]byte, error)
}

// VoteBy makes the router tell votes to other gateways. It is called once, before
// there are sessions; without it votes for others' sends are lost.
func (r *Router) VoteBy(p Peers) {
	r.polls.mu.Lock()
	defer r.polls.mu.Unlock()
	r.polls.mail.peers = p
}

// voteMail is what waits to be told to other gateways, told again until they say
// that they have it (delivery rule R1). The lock of polls guards it.
type voteMail struct {
	p     *polls
	peers Peers
	to    map[uint64]*outbound // by origin
}

type outbound struct {
	waiting map[pollKey]report
	order   []pollKey
}

// put has a report told, together with what waits already.
func (m *voteMail) put(at booth, rep report) {
	if m.peers == nil {
		return
	}
	out := m.to[at.origin]
	if out == nil {
		out = &outbound{waiting: map[pollKey]report{}}
		if m.to == nil {
			m.to = map[uint64]*outbound{}
		}
		if !m.p.r.spawn(func(ctx context.Context) { m.run(ctx, at.origin, out) }) {
			return
		}
		m.to[at.origin] = out
	}
	old, waits := out.waiting[at.key]
	switch {
	case waits:
		rep = old.then(rep)
	case len(out.order) >= maxVoteMail:
		return
	default:
		out.order = append(out.order, at.key)
	}
	out.waiting[at.key] = rep
}

// run tells one gateway what waits for it, until nothing does or it is gone.
func (m *voteMail) run(ctx context.Context, origin uint64, out *outbound) {
	to := Boot(origin).String()
	for {
		question, keys, told := m.next(origin, out)
		if len(keys) == 0 {
			return
		}
		if _, err := m.peers.Ask(ctx, to, KindVotes, question); err != nil {
			if ctx.Err() != nil || !m.live(to) {
				m.drop(origin)
				return
			}
			m.again(out, keys, told)
			wait(ctx, voteRetry)
		}
	}
}

// next takes what is to be told in one question. If nothing is, that is the end.
func (m *voteMail) next(origin uint64, out *outbound) (question []byte, keys []pollKey, told []report) {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	question = appendText(nil, m.p.self)
	n := 0
	for _, key := range out.order {
		if n >= maxVotesAtOnce || len(question) > maxVoteBytes {
			break
		}
		n++
		rep := out.waiting[key]
		delete(out.waiting, key)
		keys, told = append(keys, key), append(told, rep)
		question = appendReport(question, key, rep)
	}
	out.order = out.order[n:]
	if n == 0 {
		delete(m.to, origin)
	}
	return question, keys, told
}

// again lets wait what could not be told.
func (m *voteMail) again(out *outbound, keys []pollKey, told []report) {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	for i, key := range keys {
		later, waits := out.waiting[key]
		if !waits {
			out.order = append(out.order, key)
			later = told[i]
		}
		out.waiting[key] = told[i].then(later)
	}
}

func (m *voteMail) drop(origin uint64) {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	delete(m.to, origin)
}

// live reports whether a gateway may still take votes.
func (m *voteMail) live(id string) bool {
	if m.p.r.presence == nil {
		return false
	}
	list, certain := m.p.r.presence.Instances()
	return !certain || has(list, id)
}

func has(list []presence.Instance, id string) bool {
	for _, i := range list {
		if i.ID == id {
			return true
		}
	}
	return false
}

// TakeVotes takes what another gateway says of polls of this one. The answer is
// empty: that there is one says that the question has come.
func (r *Router) TakeVotes(_ context.Context, question []byte) []byte {
	from, rest, ok := readText(question)
	if !ok {
		return nil
	}
	r.polls.mu.Lock()
	defer r.polls.mu.Unlock()
	for len(rest) > 0 {
		var key pollKey
		var rep report
		if key, rep, rest, ok = readReport(rest); !ok {
			return nil
		}
		r.polls.take(key, from, rep)
	}
	return nil
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

func readText(b []byte) (text string, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return "", nil, false
	}
	return string(b[n : n+int(size)]), b[n+int(size):], true
}

func appendReport(b []byte, key pollKey, r report) []byte {
	for _, n := range []uint64{uint64(key.part), key.seq, uint64(r.state), uint64(r.eligible), uint64(r.acked)} {
		b = binary.AppendUvarint(b, n)
	}
	return appendText(b, r.reason[:min(len(r.reason), maxVoteReason)])
}

func readReport(b []byte) (key pollKey, r report, rest []byte, ok bool) {
	var n [5]uint64
	for i := range n {
		size := 0
		if n[i], size = binary.Uvarint(b); size <= 0 {
			return key, r, nil, false
		}
		b = b[size:]
	}
	if n[0] > 1<<20 || n[2] >= uint64(voteStates) || n[3] > 1<<31 || n[4] > 1<<31 {
		return key, r, nil, false
	}
	key = pollKey{int(n[0]), n[1]}
	r = report{state: voteState(n[2]), eligible: uint32(n[3]), acked: uint32(n[4])}
	r.reason, rest, ok = readText(b)
	return key, r, rest, ok && len(r.reason) <= maxVoteReason
}
