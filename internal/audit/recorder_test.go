package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/aether-gateway/gateway/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a store that can be away.
type memory struct {
	mu      sync.Mutex
	away    bool
	unsure  bool // does what it is told and says that it failed
	records map[store.AuditKey]store.AuditRecord
	expired time.Time
}

func (m *memory) RecordAudit(_ context.Context, records []store.AuditRecord) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return errors.New("away")
	}
	for _, r := range records {
		if m.records == nil {
			m.records = map[store.AuditKey]store.AuditRecord{}
		}
		if _, there := m.records[r.AuditKey]; !there {
			m.records[r.AuditKey] = r
		}
	}
	if m.unsure {
		m.unsure = false
		return errors.New("the answer was lost")
	}
	return nil
}

func (m *memory) AuditRecords(context.Context, store.AuditFilter, int) ([]store.AuditRecord, error) {
	return nil, nil
}

func (m *memory) ExpireAudit(_ context.Context, before time.Time) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expired = before
	return 0, nil
}

func (m *memory) set(change func(*memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

// counts returns the records, and the events in them, by the kind of the event.
func (m *memory) counts() (records int, events map[string]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	events = map[string]int64{}
	for _, r := range m.records {
		kind := r.Kind
		if r.Action == "overflow" {
			kind = r.Target
		}
		events[kind] += r.Count
	}
	return len(m.records), events
}

func start(m *memory) *Recorder {
	return New(Options{Store: m, Gateway: "gw", Origin: "boot", Retention: 24 * time.Hour})
}

func end(t *testing.T, r *Recorder) {
	t.Helper()
	if err := r.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func refusal(actor, reason, detail string) Event {
	return Event{Kind: Refusal, Actor: actor, Action: "send", Target: detail, Outcome: Refused, Reason: reason, Detail: detail}
}

// The same refusal within a second is one record with its count, whatever the
// refused one varies; others are records of their own.
func TestLikeIsCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		r := start(m)
		for i := range 1000 {
			r.Record(refusal("a", "ERR_PERMISSION_DENIED", fmt.Sprint(i)))
		}
		r.Record(refusal("a", "ERR_INVALID_TOPIC", ""))
		r.Record(refusal("b", "ERR_INVALID_TOPIC", ""))
		<-time.After(window + 1)
		synctest.Wait()
		r.Record(refusal("b", "ERR_INVALID_TOPIC", ""))
		end(t, r)
		records, events := m.counts()
		if records != 4 || events["refusal"] != 1003 {
			t.Errorf("%d records of %v", records, events)
		}
	})
}

// TestEverythingIsCounted: what goes in comes out, in records or in the number
// of those that found no room: in a flood of different refusals, while the
// store is away, and when an answer of the store is lost.
func TestEverythingIsCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		r := start(m)
		in := map[string]int64{}
		put := func(e Event) {
			in[string(e.Kind)]++
			r.Record(e)
		}
		for round := range 30 {
			m.set(func(m *memory) { m.away, m.unsure = round >= 10 && round < 20, round%3 == 0 })
			for i := range 1000 {
				put(refusal(fmt.Sprint("actor", round, i), "ERR", "x"))
			}
			for i := range 300 {
				put(Event{Kind: Connect, Actor: fmt.Sprint("actor", round, i), Action: "connect", Outcome: OK})
			}
			put(Event{Kind: Operate, Actor: "op", Action: "sessions kick", Target: fmt.Sprint(round), Outcome: OK})
			<-time.After(window)
			synctest.Wait()
		}
		end(t, r)
		records, out := m.counts()
		for kind, n := range in {
			if out[kind] != n {
				t.Errorf("%s: %d events went in, %d came out", kind, n, out[kind])
			}
		}
		most := int(rates[Refusal].burst+31*rates[Refusal].perSecond) + 30*300 + 30 + 2*31
		if records > most {
			t.Errorf("a flood made %d records, at most %d should be", records, most)
		}
		if s := r.Stats(); s.Stored != uint64(records) || s.Recorded != 30*1301 || s.Overflowed == 0 || s.Failures == 0 {
			t.Errorf("%d records, %+v", records, s)
		}
	})
}

// What waits for a store that is away is bounded, and operators' records wait
// behind nobody's flood.
func TestBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{away: true}
		r := start(m)
		const events = 3 * maxWaiting
		for i := range events {
			r.Record(Event{Kind: Operate, Actor: fmt.Sprint(i), Action: "x", Outcome: OK})
			if i%100 == 0 {
				<-time.After(window / 10)
			}
		}
		synctest.Wait()
		r.mu.Lock()
		if n := len(r.waiting) + len(r.order); n != maxWaiting || len(r.lost) != 1 {
			t.Errorf("%d records wait, %d kinds are lost", n, len(r.lost))
		}
		r.mu.Unlock()
		m.set(func(m *memory) { m.away = false })
		end(t, r)
		records, out := m.counts()
		if out[string(Operate)] != events || records != maxWaiting+1 {
			t.Errorf("%v in %d records", out, records)
		}
	})
}

// A store that stays away is said to be the loss that it is; what comes after
// the end is not taken.
func TestLostAtTheEnd(t *testing.T) {
	t.Parallel()
	m := &memory{away: true}
	r := start(m)
	r.Record(refusal("a", "ERR", ""))
	if err := r.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "1 records are lost") {
		t.Errorf("got %v", err)
	}
	r.Record(refusal("b", "ERR", ""))
	if s := r.Stats(); s.Recorded != 1 {
		t.Errorf("got %+v", s)
	}
	var none *Recorder
	none.Record(refusal("b", "ERR", ""))
	if err := none.Close(t.Context()); err != nil || none.Stats() != (Stats{}) {
		t.Error(err)
	}
}

// Old records are removed from time to time.
func TestExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		r := start(m)
		<-time.After(2 * expireEvery)
		synctest.Wait()
		m.set(func(m *memory) {
			if age := time.Since(m.expired); age < 24*time.Hour || age > 26*time.Hour {
				t.Errorf("what is older than %s was removed", age)
			}
		})
		end(t, r)
	})
}

func TestClean(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain": "plain", "a\x00b": "a�b", "\xff\xfe": "�", strings.Repeat("x", maxText+1): strings.Repeat("x", maxText),
		"x" + strings.Repeat("é", maxText): "x" + strings.Repeat("é", (maxText-1)/2),
	} {
		if got := clean(in); got != want {
			t.Errorf("%.20q… of %d bytes became %.20q… of %d", in, len(in), got, len(got))
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("\xff\x00" + strings.Repeat("€", 300))
	f.Fuzz(func(t *testing.T, s string) {
		if got := clean(s); !utf8.ValidString(got) || strings.ContainsRune(got, 0) || len(got) > 3*maxText {
			t.Errorf("%q became %q", s, got)
		}
	})
}

// A text that is cut does not keep the rest of it: one frame has 4 MiB, and
// thousands of records may wait for a store that is away.
func TestCutTextsKeepNothingElse(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	if cut := clean(long); len(cut) != maxText || unsafe.StringData(cut) == unsafe.StringData(long) {
		t.Error("the record holds all of the text")
	}
}
