package router

import (
	"math/rand/v2"
	"time"

	"github.com/aether-gateway/gateway/internal/claims"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/envelope"
)

const (
	// maxCandidates and maxCandidateBytes bound the messages that wait to be
	// claimed; past them the group stands still in the log.
	maxCandidates     = claims.MaxRound
	maxCandidateBytes = 4 << 20
	// maxFreeAtOnce is how many messages that were given back are claimed at
	// once; each may cost a look into the log.
	maxFreeAtOnce = 64
	// freeDelay is how long a message that was given back is left to other
	// gateways.
	freeDelay = 50 * time.Millisecond
	// maxBeyond is how many looks, claimTouch apart, have to find the floor
	// beyond the end of the log.
	maxBeyond = 10
	// maxAcksAtOnce is how many acknowledgements go into one exchange.
	maxAcksAtOnce = 2000
	// maxPassed bounds what a group remembers of others' most recent claims;
	// past it the oldest are forgotten.
	maxPassed = 4096
	// loadDelay is how much later a gateway claims for each message that its
	// least loaded worker has, so that gateways with less to do come first;
	// maxLoadDelay is the most.
	loadDelay    = 200 * time.Microsecond
	maxLoadDelay = 5 * time.Millisecond
)

// contest is a group's part in the competition with the workers of other
// gateways (delivery rules T1 to T3). What the log shows becomes a candidate;
// the claimer claims as many as the workers have credit for, and what is
// granted is handed out. The group's lock guards it, but for its place in the
// claimer's heap and the acknowledgements.
type contest struct {
	g *group
	c *claimer

	due   time.Time // under the claimer's lock, like index and away
	index int       // in the claimer's heap, -1 outside
	away  bool      // its round is not over

	acks acks

	// in is the incarnation of the claims in which the group has been entered,
	// empty if it has not. known says that cursor, up to where everything is
	// decided, means something there or in an earlier one.
	in     string
	known  bool
	cursor int64
	// joining is set from the first worker's arrival until the group has been
	// entered for it; placed says that the group has a place in the log.
	joining, placed bool
	stint           *stint
	open            bool  // candidates can be claimed
	told            bool  // the others know that nobody listens here
	tail            int64 // the tail's position when the first worker came, or the last left
	left, back      int64 // nobody listened here in between; none
	last            int64 // the last message that was seen
	backlog, read   bool  // something undecided may have been left behind; all of it was seen

	candidates []candidate
	bytes      int
	claimAt    time.Time // not before

	owned   map[uint64]uint8 // attempts of the open claims of this gateway; at most claims.MaxOpen
	mine    []claims.Claim   // owned, waiting to be read and handed out; among owned
	freeing []claims.Claim   // owned, to be given back; among owned
	handing bool             // mine has its task

	others int // other gateways with workers
	free   int // messages that wait for a worker
	// Not before: what was given back here is left to others first.
	freeAt time.Time

	// Copies, for the loss of the claims (delivery rule T2).
	unsure bool // what the last exchange did is not known
	copyAt time.Time
	table  map[uint64]claims.Owned // others' open claims; at most claims.MaxCopy and what was freed since
	passed []uint64                // claimed by others since the copy; at most maxPassed
	peers  string
	doubt  []uint64 // candidates that an exchange may have granted
	tellOf bool     // the copies are to be told, when all have entered again
	// settled says that all have: what the last answer said counts.
	settled bool

	beyond   int       // how many looks have found the floor beyond the log's end
	beyondAt time.Time // the last of them
	reset    bool
	rewound  bool  // the tail has found it out
	resets   int   // that are known of
	end      int64 // where to go on in the new log
}

// candidate is a message that may be claimed. It is a copy: the entry that it
// came in may be large.
type candidate struct {
	position uint64
	view     envelope.View
	size     int
}

func newContest(g *group, c *claimer) *contest {
	return &contest{
		g: g, c: c, index: -1, cursor: none, tail: none, left: none, back: none, last: none,
		owned: map[uint64]uint8{}, table: map[uint64]claims.Owned{},
	}
}

// join is called for the first worker. The partition's and the group's locks
// are held, here and in leave.
func (c *contest) join(tailAt int64) {
	c.joining, c.placed, c.open = true, false, false
	c.stint = &stint{c.g}
	c.tail = tailAt
	if c.left != none {
		c.back = tailAt
	}
	c.g.feeder = delivery.FedByNobody
	c.schedule(time.Now())
}

// leave is called when the last worker has left. What is undecided is left to
// others, or to the next worker.
func (c *contest) leave(tailAt int64) {
	c.backlog, c.read = true, c.g.feeder == delivery.FedByTail
	c.joining, c.placed, c.open, c.told = false, false, false, false
	c.stint = nil
	c.tail, c.left, c.back = tailAt, tailAt, none
	c.candidates, c.bytes = nil, 0
	c.g.feeder = delivery.FedByNobody
	c.schedule(time.Now())
}

func (c *contest) schedule(at time.Time) { c.c.schedule(c, at) }

// offer makes a message a candidate. It reports false if there are too many.
// The group's lock is held.
func (c *contest) offer(v *envelope.View, position uint64) bool {
	if int64(position) <= c.cursor {
		return true
	}
	size := delivery.FrameBound(v)
	if len(c.candidates) >= maxCandidates || len(c.candidates) > 0 && c.bytes+size > maxCandidateBytes {
		return false
	}
	c.last = max(c.last, int64(position))
	c.candidates = append(c.candidates, candidate{position: position, view: v.Clone(), size: size})
	c.bytes += size
	if len(c.candidates) == 1 {
		c.soon(time.Now(), c.credit())
	}
	return true
}

// rewind is called when the tail begins anew behind a position, since the log
// is another one. The group's lock is held.
func (c *contest) rewind(at int64) {
	c.rewound, c.end = true, at
	c.candidates, c.bytes = nil, 0
	c.schedule(time.Now())
}

// soon makes the next round claim, the later the busier the workers are.
func (c *contest) soon(now time.Time, credit delivery.Credit) {
	delay := time.Duration(0)
	if c.others > 0 && credit.Load > 0 {
		delay = min(time.Duration(credit.Load)*loadDelay, maxLoadDelay)
		delay = delay/2 + rand.N(delay)
	}
	if at := now.Add(delay); !c.claimAt.After(now) || at.Before(c.claimAt) {
		c.claimAt = at
	}
	c.schedule(c.claimAt)
}

// credit is what the workers would take together; its load is that of the
// least loaded one that would.
func (c *contest) credit() (sum delivery.Credit) {
	first := true
	for _, m := range c.g.members {
		credit := m.Mailbox().Credit()
		if credit.Frames <= 0 {
			continue
		}
		sum.Frames += credit.Frames
		sum.Bytes += credit.Bytes
		if first || credit.Load < sum.Load {
			sum.Load, first = credit.Load, false
		}
	}
	sum.Frames -= len(c.mine)
	return sum
}

// refill goes on when a worker has room again.
func (c *contest) refill() {
	c.g.mu.Lock()
	if len(c.candidates) > 0 || c.free > 0 {
		c.soon(time.Now(), c.credit())
	}
	feed := c.hungry()
	c.g.mu.Unlock()
	if feed != nil {
		c.g.p.feed(feed)
	}
}

// hungry returns what is to be fed, nil if nothing more of the log should be
// looked at. The group's lock is held.
func (c *contest) hungry() *stint {
	if c.placed && c.g.feeder == delivery.FedByNobody &&
		len(c.candidates) <= maxCandidates/2 && c.bytes <= maxCandidateBytes/2 {
		return c.stint
	}
	return nil
}

// freed hears that some message waits for a worker.
func (c *contest) freed() {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	c.free = max(c.free, 1)
	if len(c.g.members) > 0 {
		c.soon(time.Now(), c.credit())
	}
}

// ask makes the next round, nil if there is nothing to ask.
func (c *contest) ask(now time.Time) *claims.Round {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	r := &claims.Round{
		Topic: c.g.topic, Incarnation: c.in, Listening: len(c.g.members) > 0, Tail: c.tail,
		Cursor: none, Left: none, Back: none,
		Done: c.someAcks(), Free: c.freeing[:min(len(c.freeing), maxAcksAtOnce)],
	}
	switch {
	case c.in == "" && c.known:
		r.Enter, r.Cursor, r.Left, r.Back = claims.Resume, c.cursor, c.left, c.back
		// Not what is done and not told yet: it is done before it is owned.
		done := c.allAcks()
		for position, attempts := range c.owned {
			if _, ok := done[position]; !ok {
				r.Own = append(r.Own, claims.Claim{Position: position, Attempts: attempts})
			}
		}
	case c.in == "" || c.joining:
		if !r.Listening {
			return nil
		}
		r.Enter = claims.Begin
	}
	if r.Enter == claims.Stay && c.settled {
		if c.tellOf {
			r.Orphans = c.orphans()
		}
		if c.reset || c.rewound {
			r.Enter, r.Cursor, r.Resets = claims.Reset, c.end, c.resets
			return r
		}
	}
	r.Recall = c.unsure
	r.Copy = now.After(c.copyAt) && (c.others > 0 || c.free > 0 || len(c.table) > 0)
	if r.Enter != claims.Stay || !c.open {
		return r
	}
	credit := c.credit()
	if credit.Frames <= 0 {
		c.park()
		return r
	}
	if (c.free > 0 || r.Copy || r.Recall) && !now.Before(c.freeAt) {
		r.MaxFree = min(credit.Frames, maxFreeAtOnce)
	}
	if len(c.candidates) > 0 && !now.Before(c.claimAt) {
		c.candidate(r, credit)
	}
	r.Max = min(r.Max+r.MaxFree, credit.Frames)
	return r
}

// candidate adds the candidates to a round. While other gateways have workers
// too, only a part of them is wanted at a time.
func (c *contest) candidate(r *claims.Round, credit delivery.Credit) {
	wanted := min(credit.Frames, (len(c.candidates)+c.others)/(c.others+1))
	bytes := 0
	r.Candidates = make([]uint64, len(c.candidates))
	for i := range c.candidates {
		r.Candidates[i] = c.candidates[i].position
		if bytes += c.candidates[i].size; i < wanted && (i == 0 || bytes <= credit.Bytes) {
			r.Max = i + 1
		}
	}
}

// park lets the workers' pumps tell when there is credit again. The group's
// lock is held.
func (c *contest) park() {
	for _, m := range c.g.members {
		m.StarveFor(0)
	}
}

// orphans are the claims of others that this gateway knows of.
func (c *contest) orphans() []claims.Owned {
	list := make([]claims.Owned, 0, len(c.table)+len(c.passed)+len(c.doubt))
	for _, o := range c.table {
		if o.Owner == "" {
			o.Attempts = max(o.Attempts, 1) // a worker may have had it since
		}
		list = append(list, o)
	}
	if c.peers != "" {
		for _, position := range c.passed {
			list = append(list, claims.Owned{Claim: claims.Claim{Position: position}, Owner: c.peers})
		}
	}
	// These may have been granted to this gateway without its knowledge; the
	// others know only that they are claimed.
	for _, position := range c.doubt {
		list = append(list, claims.Owned{Claim: claims.Claim{Position: position, Attempts: 1}})
	}
	return list
}

// failed is called instead of answer after a failed exchange.
func (c *contest) failed(r *claims.Round, now time.Time) {
	c.g.mu.Lock()
	c.c.back(c)
	c.unsure = true
	if len(r.Candidates) > 0 {
		// A later round asks for what an earlier one has, and more.
		c.doubt = r.Candidates
	}
	c.g.mu.Unlock()
	c.schedule(now.Add(claimRetry/2 + rand.N(claimRetry)))
}
