package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Rule names a promise.
type Rule string

// The promises that are judged.
const (
	// Lost: a message with a receipt was not processed by whom it was for.
	Lost Rule = "lost"
	// Duplicated: it was processed twice by a receiver that remembers, or came
	// twice within a session, or to two workers as if it were new, or from two
	// places in the log.
	Duplicated Rule = "duplicated"
	// Reordered: it came after a later one of its sender to its address.
	Reordered Rule = "reordered"
	// Foreign: somebody got what was not for it, or what nobody has sent.
	Foreign Rule = "foreign"
	// Unflagged: the process that delivered it before did not call it a repeat.
	Unflagged Rule = "unflagged"
	// Stale: a session was still given messages long after another one had taken
	// its place.
	Stale Rule = "stale"
	// Positions: the positions within a session do not rise.
	Positions Rule = "positions"
	// Unfinished: a task that was created has not ended.
	Unfinished Rule = "unfinished"
	// TwoHolders: two workers had one attempt of a task, or one completed an
	// attempt that was another's.
	TwoHolders Rule = "two holders"
	// Revived: a task that had ended went on, or ended otherwise than was
	// confirmed.
	Revived Rule = "revived"
	// Attempts: a task was tried, or a start handed out, more often than it may be.
	Attempts Rule = "attempts"
	// TwoStarts: somebody was started while being started.
	TwoStarts Rule = "two starts"
	// Untold: a creator that was there was not told how its task ended.
	Untold Rule = "untold"
)

// Violation is a broken promise.
type Violation struct {
	Rule    Rule
	Message Message
	Task    string // "": it is about a message
	Who     string
	Event   int // index of the event that shows it; of the first attempt for Lost
	Text    string
}

func (v Violation) String() string {
	if v.Task != "" {
		return fmt.Sprintf("%s: task %s, %s: %s", v.Rule, v.Task, v.Who, v.Text)
	}
	return fmt.Sprintf("%s: %s, receiver %s: %s", v.Rule, v.Message, v.Who, v.Text)
}

// mode is how an address is read.
type mode uint8

const (
	nobody mode = iota // no receiver of the history has it
	exclusive
	workers
	shared
)

// address is what the receivers of a history say of one.
type address struct {
	mode      mode
	class     string
	receivers []*reader
}

// reader is a receiver and what it has got.
type reader struct {
	Receiver
	session   string
	joined    time.Duration
	stays     []*span // its sessions, which do not overlap
	processed map[Message]bool
	position  map[string]int64 // by address, of the session
	came      map[pair]*seqs   // of the session, shared and workers
}

// pair is a sender and an address.
type pair struct{ sender, to string }

// seqs are the sequences that came, of one pair.
type seqs struct {
	list    []int
	highest int
}

// message is what is known of one.
type message struct {
	Message
	attempts  []int         // indexes of the events
	failed    time.Duration // when its first failure was told; -1: not
	answered  bool
	stored    bool
	maybe     bool // a failure left open whether it is stored
	storedAt  time.Duration
	joins     int  // sessions of its sender before the first attempt
	repeated  bool // its sender, or its client, has sent it again
	got       []delivery
	position  int64 // the first that was told; NoPosition: none
	processed bool
}

type delivery struct {
	who, session, gateway string
	flagged               bool
	at                    time.Duration
}

type judge struct {
	h         History
	addresses map[string]*address
	readers   map[string]*reader
	messages  map[Message]*message
	order     []*message     // by first attempt
	first     map[pair]*seqs // of first deliveries to exclusive addresses
	joins     map[string]int
	began     map[string]time.Duration // sessions of readers
	open      map[string]*span         // of readers, by session
	processes map[string]*span         // of gateways
	faults    []*span
	suspects  []suspect
	tasks     map[string]*taskStory
	result    *Result
}

// span is the time of a session, a process or a fault; to is -1 while it lasts.
type span struct {
	from, to time.Duration
	gaps     map[string]bool // of a session: addresses that it was told gaps of; "" is all
	fault    Event           // of a fault
}

// close ends a span that lasts.
func (s *span) close(at time.Duration) {
	if s != nil && s.to < 0 {
		s.to = at
	}
}

// Judge compares a history with the promises.
func Judge(h History) *Result {
	j := &judge{
		h: h, addresses: map[string]*address{}, readers: map[string]*reader{}, messages: map[Message]*message{},
		first: map[pair]*seqs{}, joins: map[string]int{}, began: map[string]time.Duration{}, open: map[string]*span{}, processes: map[string]*span{},
		tasks:  map[string]*taskStory{},
		result: &Result{Rows: map[string]*Row{}, Faults: map[string]int{}},
	}
	for _, r := range h.Receivers {
		j.add(r)
	}
	for i, e := range h.Events {
		j.event(i, e)
	}
	j.end()
	slices.SortStableFunc(j.result.Violations, func(a, b Violation) int { return cmp.Compare(a.Event, b.Event) })
	return j.result
}

func (j *judge) add(r Receiver) {
	rd := &reader{
		Receiver: r, processed: map[Message]bool{}, position: map[string]int64{}, came: map[pair]*seqs{},
	}
	j.readers[r.Name] = rd
	join := func(name string, m mode, class string) {
		if name == "" {
			return
		}
		a := j.addresses[name]
		if a == nil {
			a = &address{mode: m, class: class}
			j.addresses[name] = a
		}
		a.receivers = append(a.receivers, rd)
	}
	join(r.Exclusive, exclusive, cmp.Or(r.Class, "exclusive"))
	join(r.Workers, workers, "workers")
	for _, s := range r.Shared {
		join(s, shared, "shared")
	}
}

func (j *judge) violate(rule Rule, m Message, who string, event int, format string, args ...any) {
	j.result.Violations = append(j.result.Violations, Violation{Rule: rule, Message: m, Who: who, Event: event, Text: fmt.Sprintf(format, args...)})
	row := j.row(m.To)
	switch rule {
	case Lost:
		row.Lost++
	case Duplicated:
		row.Duplicated++
	case Reordered:
		row.Reordered++
	case Foreign:
		row.Foreign++
	case Unflagged:
		row.Unflagged++
	case Stale:
		row.Stale++
	case Positions:
		row.Positions++
	}
}

// row returns the table's row for an address.
func (j *judge) row(to string) *Row {
	class := "other"
	if a := j.addresses[to]; a != nil {
		class = a.class
	}
	r := j.result.Rows[class]
	if r == nil {
		r = &Row{}
		j.result.Rows[class] = r
	}
	return r
}

func (j *judge) event(i int, e Event) {
	switch e.Kind {
	case Attempt, Stored, Refused, Unknown:
		j.send(i, e)
	case Joined:
		j.joins[e.Sender]++
		j.join(e)
	case Left:
		j.leave(e)
	case Delivered:
		j.delivered(i, e)
	case Processed:
		j.process(i, e)
	case Gap:
		j.result.Gaps++
		if s := j.open[e.Session]; s != nil {
			s.gaps[e.Text] = true
		}
	case Garbled:
		j.violate(Foreign, Message{}, e.Who, i, "what came is no message of the workload: %s", e.Text)
	case Up:
		j.processes[e.Gateway] = &span{from: e.At, to: -1}
	case Down:
		j.processes[e.Gateway].close(e.At)
	case Fault:
		j.result.Faults[e.Who]++
		j.faults = append(j.faults, &span{from: e.At, to: -1, fault: e})
	case Healed:
		j.heal(e)
	case Created, Handed, Began, Ended, Told, Is:
		j.task(i, e)
	}
}

func (j *judge) join(e Event) {
	r := j.readers[e.Who]
	if r == nil {
		return
	}
	j.open[r.session].close(e.At) // whatever its stream still brings
	r.session, r.joined = e.Session, e.At
	r.position, r.came = map[string]int64{}, map[pair]*seqs{}
	s := &span{from: e.At, to: -1, gaps: map[string]bool{}}
	j.open[e.Session], j.began[e.Session] = s, e.At
	r.stays = append(r.stays, s)
}

func (j *judge) leave(e Event) {
	if r := j.readers[e.Who]; r != nil && r.session == e.Session {
		r.session = ""
	}
	j.open[e.Session].close(e.At)
	delete(j.open, e.Session)
}

func (j *judge) send(i int, e Event) {
	m := j.messages[e.Message()]
	if m == nil {
		if e.Kind != Attempt {
			j.violate(Foreign, e.Message(), e.Who, i, "a send that was never made was answered: %s", e.Kind)
			return
		}
		m = &message{Message: e.Message(), failed: -1, position: NoPosition, joins: j.joins[e.Sender]}
		j.messages[m.Message] = m
		j.order = append(j.order, m)
		j.row(m.To).Sent++
	}
	switch e.Kind {
	case Attempt:
		j.result.answer(e)
		m.attempts = append(m.attempts, i)
		m.repeated = m.repeated || len(m.attempts) > 1
		m.answered = false
		return
	case Stored:
		j.result.answer(e)
		if !m.stored {
			m.stored, m.storedAt = true, e.At
		}
		if e.Duplicate {
			j.row(m.To).DuplicateReceipts++
		}
	case Refused, Unknown:
		m.maybe = m.maybe || e.Kind == Unknown
		if m.failed < 0 {
			m.failed = e.At
		}
	}
	m.repeated = m.repeated || j.joins[e.Sender] > m.joins
	m.answered = true
}

// sentAt is when a message was sent first.
func (j *judge) sentAt(m *message) time.Duration { return j.h.Events[m.attempts[0]].At }

// again reports whether the message may have been handed to gateways more than
// once by its sender, or by the sender's client after a broken connection.
func (j *judge) again(m *message) bool {
	return m.repeated || !m.answered && j.joins[m.Sender] > m.joins
}

// process notes that a receiver's program has done its work.
func (j *judge) process(i int, e Event) {
	r, m := j.readers[e.Who], j.messages[e.Message()]
	if r == nil || m == nil {
		return // delivered has reported it
	}
	if r.processed[m.Message] && r.Remembers {
		j.violate(Duplicated, m.Message, e.Who, i, "it was processed before")
	}
	r.processed[m.Message] = true
	m.processed = true
}
