package ring

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// modelSteps is how many random steps a model test takes.
func modelSteps() int {
	if os.Getenv("AETHER_TEST_LONG") != "" {
		return 1_000_000
	}
	return 40_000
}

// model is the slow and obvious ring: all that was ever published, and for each
// reader how far it is.
type model struct {
	capacity, maxBytes int
	all                []modelMessage
	tail               int
	readers            []*modelReader
	missed             []string // of tracked messages
}

type modelMessage struct {
	size    int
	classes uint64
	subject byte
	except  *modelReader
	only    []*modelReader // nil: for all
	tracked bool
}

type modelReader struct {
	id                         int
	class                      int
	subject                    byte // of the class Own
	disconnect                 bool
	pos                        int
	parked                     bool
	wakes                      int
	delivered, missed, matched int

	real      *Reader[int]
	realWakes int
}

func (rd *modelReader) takes(m modelMessage) bool {
	if m.only != nil {
		return slices.Contains(m.only, rd)
	}
	switch {
	case m.except == rd:
		return false
	case rd.class == Every:
		return true
	case rd.class == Own:
		return m.subject == rd.subject
	}
	return m.classes&(1<<rd.class) != 0
}

func (m *model) publish(msg modelMessage) {
	if len(m.readers) == 0 {
		m.all = append(m.all, msg)
		m.tail = len(m.all)
		return
	}
	for m.tail < len(m.all) && (len(m.all)-m.tail == m.capacity || m.bytes()+msg.size > m.maxBytes) {
		for _, rd := range m.readers {
			if !rd.parked && rd.pos <= m.tail && m.all[m.tail].tracked && rd.takes(m.all[m.tail]) {
				m.missed = append(m.missed, fmt.Sprint(rd.id, m.tail))
			}
		}
		m.tail++
	}
	m.all = append(m.all, msg)
	for _, rd := range m.readers {
		if !rd.takes(msg) {
			continue
		}
		if rd.matched++; rd.parked {
			rd.parked, rd.pos = false, len(m.all)-1
			rd.wakes++
		}
	}
	m.release()
}

func (m *model) bytes() (n int) {
	for _, msg := range m.all[m.tail:] {
		n += msg.size
	}
	return n
}

// release forgets what everybody has passed, unless somebody has yet to learn
// that it fell off.
func (m *model) release() {
	lowest := len(m.all)
	for _, rd := range m.readers {
		if !rd.parked {
			lowest = min(lowest, rd.pos)
		}
	}
	m.tail = max(m.tail, lowest)
}

func (m *model) read(rd *modelReader, n, bytes int) (items []int, lag Lag, more, closed bool) {
	if rd.parked {
		return nil, lag, false, false
	}
	lagged := rd.pos < m.tail
	for ; rd.pos < m.tail; rd.pos++ {
		lag.Raw++
		if rd.takes(m.all[rd.pos]) {
			lag.Missed++
			lag.Bytes += uint64(m.all[rd.pos].size)
			rd.missed++
		}
	}
	if lagged && rd.disconnect {
		m.leave(rd)
		return nil, lag, false, true
	}
	for size := 0; rd.pos < len(m.all); rd.pos++ {
		msg := m.all[rd.pos]
		if !rd.takes(msg) {
			continue
		}
		if len(items) == n || len(items) > 0 && size+msg.size > bytes {
			more = true
			break
		}
		items = append(items, rd.pos)
		size += msg.size
		rd.delivered++
	}
	rd.parked = !more
	m.release()
	return items, lag, more, false
}

func (m *model) leave(rd *modelReader) {
	m.readers = slices.DeleteFunc(m.readers, func(o *modelReader) bool { return o == rd })
	m.release()
}

// run drives a ring and the model by the same random steps, and returns what
// differs. corrupt, if set, is called after each step.
func run(seed uint64, steps int, corrupt func(step int, r *Ring[int])) error {
	rng := rand.New(rand.NewPCG(seed, 7))
	capacity := 1 << (1 + rng.IntN(6))
	m := &model{capacity: capacity, maxBytes: capacity * 6}
	var missed []string
	r := New(Options[int]{Capacity: capacity, Bytes: m.maxBytes, Missed: func(rd *Reader[int], item int) {
		missed = append(missed, fmt.Sprint(rd.Data, item))
	}})
	ids := 0
	join := func() {
		ids++
		rd := &modelReader{id: ids, class: rng.IntN(8) - 2, subject: byte(rng.IntN(3)), disconnect: rng.IntN(4) == 0, parked: true}
		rd.real = r.Join(Join{Class: rd.class, Disconnect: rd.disconnect, Wake: func() { rd.realWakes++ }, Match: func(s []byte) bool { return s[0] == rd.subject }})
		rd.real.Data = ids
		m.readers = append(m.readers, rd)
	}
	for step := range steps {
		some := func() *modelReader { return m.readers[rng.IntN(len(m.readers))] }
		switch k := rng.IntN(100); {
		case len(m.readers) == 0 || k < 4 && len(m.readers) < 12:
			join()
		case k < 7:
			rd := some()
			rd.real.Leave()
			m.leave(rd)
		case k < 60:
			msg := modelMessage{size: rng.IntN(12), classes: rng.Uint64() & rng.Uint64() & 0x3f, subject: byte(rng.IntN(3)), tracked: rng.IntN(3) == 0}
			real := Message[int]{Item: len(m.all), Size: msg.size, Classes: msg.classes, Subject: []byte{msg.subject}, Tracked: msg.tracked}
			switch rng.IntN(6) {
			case 0:
				msg.except = some()
				real.Except = msg.except.real
			case 1:
				msg.only = []*modelReader{some()}
				real.Only = []*Reader[int]{msg.only[0].real}
			}
			number, ok := r.Publish(real)
			if !ok || int(number) != len(m.all) {
				return fmt.Errorf("step %d: message %d is the %dth", step, len(m.all), number)
			}
			m.publish(msg)
		default:
			rd := some()
			n, bytes := 1+rng.IntN(8), rng.IntN(40)
			items, lag, more, closed := rd.real.Read(nil, n, bytes)
			wantItems, wantLag, wantMore, wantClosed := m.read(rd, n, bytes)
			if !slices.Equal(items, wantItems) || lag != wantLag || more != wantMore || closed != wantClosed {
				return fmt.Errorf("step %d: got %v %+v %v %v, want %v %+v %v %v", step, items, lag, more, closed, wantItems, wantLag, wantMore, wantClosed)
			}
		}
		if corrupt != nil {
			corrupt(step, r)
		}
		if s := r.Stats(); s.Messages != len(m.all)-m.tail || s.Bytes != m.bytes() || s.Readers != len(m.readers) {
			return fmt.Errorf("step %d: keeps %+v, want %d messages of %d bytes, %d readers", step, s, len(m.all)-m.tail, m.bytes(), len(m.readers))
		}
		for _, rd := range m.readers {
			if rd.wakes != rd.realWakes {
				return fmt.Errorf("step %d: a reader was woken %d times, want %d", step, rd.realWakes, rd.wakes)
			}
		}
		slices.Sort(missed)
		slices.Sort(m.missed)
		if !slices.Equal(missed, m.missed) {
			return fmt.Errorf("step %d: told of missed %v, want %v", step, missed, m.missed)
		}
		missed, m.missed = missed[:0], m.missed[:0]
	}
	for _, rd := range slices.Clone(m.readers) {
		closed := false
		for more := true; more; {
			_, _, more, closed = rd.real.Read(nil, 64, 1<<20)
			m.read(rd, 64, 1<<20)
		}
		if !closed && rd.delivered+rd.missed != rd.matched {
			return fmt.Errorf("a reader got %d and missed %d of %d", rd.delivered, rd.missed, rd.matched)
		}
	}
	return nil
}

// What each reader gets, what it is told that it missed, when it is woken, and
// what the ring keeps are what the obvious ring says.
func TestModel(t *testing.T) {
	t.Parallel()
	const seeds = 8
	for seed := range uint64(seeds) {
		if err := run(seed, modelSteps()/seeds, nil); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// A defect of any part shows in the model test.
func TestModelFindsDefects(t *testing.T) {
	t.Parallel()
	anyReader := func(r *Ring[int], of state) (found *Reader[int]) {
		lists := []*list[int]{&r.lagging}
		for l := range r.parkingLots {
			lists = append(lists, l)
		}
		for i := r.tail; i < r.head; i++ {
			lists = append(lists, &r.at(i).here)
		}
		for _, l := range lists {
			for rd := range l.all {
				if rd.state == of {
					found = rd
				}
			}
		}
		return found
	}
	defects := map[string]func(r *Ring[int]) bool{
		"a message is counted twice as gone": func(r *Ring[int]) bool { r.every.below.n++; return true },
		"a class forgets one that is gone": func(r *Ring[int]) bool {
			return len(r.classes) > 0 && func() bool { r.classes[0].below.n--; return true }()
		},
		"a reader counts one as passed": func(r *Ring[int]) bool {
			rd := anyReader(r, lagging)
			return rd != nil && func() bool { rd.passed.n++; return true }()
		},
		"a parked reader is forgotten": func(r *Ring[int]) bool {
			rd := anyReader(r, parked)
			return rd != nil && func() bool { rd.unlink(); return true }()
		},
		"a standing reader is parked": func(r *Ring[int]) bool {
			rd := anyReader(r, standing)
			return rd != nil && func() bool { rd.unlink(); rd.park(); return true }()
		},
		"a standing reader stands one further on": func(r *Ring[int]) bool {
			rd := anyReader(r, standing)
			if rd == nil || rd.at+1 == r.head {
				return false
			}
			rd.unlink()
			rd.at++
			rd.state = standing
			r.at(rd.at).here.push(rd)
			return true
		},
		"two messages change places": func(r *Ring[int]) bool {
			if r.head-r.tail < 2 {
				return false
			}
			a, b := r.at(r.tail), r.at(r.tail+1)
			a.Message, b.Message = b.Message, a.Message
			return true
		},
		"a message goes uncounted": func(r *Ring[int]) bool {
			if r.tail == r.head || r.at(r.tail).here.first != nil {
				return false
			}
			r.bytes -= r.at(r.tail).Size
			r.tail++
			return true
		},
		"bytes are counted wrong": func(r *Ring[int]) bool { r.bytes++; return true },
	}
	for name, defect := range defects {
		found := false
		for seed := range uint64(8) {
			done := false
			err := run(seed, 4000, func(step int, r *Ring[int]) {
				if !done && step > 200 {
					r.mu.Lock()
					done = defect(r)
					r.mu.Unlock()
				}
			})
			found = found || done && err != nil
		}
		if !found {
			t.Errorf("not found: %s", name)
		}
	}
}
