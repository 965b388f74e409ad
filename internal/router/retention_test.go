package router

import (
	"context"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

// trimTo removes everything below the position of a message.
func (w *world) trimTo(position uint64) {
	w.log.Trim(0, streams.Position(position).Offset())
}

func (s *session) toldOnce(reason GapReason, topic string) {
	s.w.t.Helper()
	if told := s.told(); len(told) != 1 || told[0].Reason != reason || told[0].Topic != topic {
		s.w.t.Fatalf("%s was told %v", s.name, told)
	}
}

// Row 2 of what others get wrong, delivery rule C6: what retention removed
// before it was delivered is told, once, before the next message.
func TestC6RetentionIsTold(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.RingBytes = 500 })
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	for _, text := range []string{"lost", "lost too", "kept"} {
		a.send(absent, text, "r")
		a.receipts(1)
		w.traffic(a, b, 10)
	}
	w.trimTo(w.inLog(absent)[2])
	c := w.agent("absent", client(0))
	c.wants("kept")
	c.toldOnce(GapRetention, absent)
	c.ack(1)
	w.settled()
	w.eventually(func() bool { _, noted := w.store.noteOf(absent); return !noted })
	c.leave()
	c = w.agent("absent", client(0))
	w.settled()
	c.pump()
	c.quiet()
	if told := c.told(); len(told) != 0 {
		t.Fatalf("told again: %v", told)
	}
}

// All its mail is gone: it is told, too, and gets what comes.
func TestC6RetentionOfEverything(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.RingBytes = 500 })
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	a.send(absent, "lost", "r")
	a.receipts(1)
	w.traffic(a, b, 20)
	entries := w.log.Entries(0)
	w.log.Trim(0, entries[len(entries)-1].Offset)
	c := w.agent("absent", client(0))
	w.eventually(func() bool { c.pump(); return c.live() })
	c.toldOnce(GapRetention, absent)
	a.send(absent, "new", "")
	c.wants("new")
}

// A position that was not done and is gone.
func TestC6RetentionOfTheUnfinished(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.RingBytes = 500 })
	a, b, c := w.agent("a", client(0)), w.agent("b", client(0)), w.agent("absent", client(0))
	w.warm(a, c)
	a.send(absent, "not done", "r")
	a.receipts(1)
	c.wants("not done")
	c.ack(1)
	w.settled()
	c.leave()
	w.traffic(a, b, 20)
	entries := w.log.Entries(0)
	w.log.Trim(0, entries[len(entries)-1].Offset)
	c = w.agent("absent", client(0))
	w.eventually(func() bool { c.pump(); return c.live() })
	c.toldOnce(GapRetention, absent)
}

// Row 2: nobody is told of a gap who missed nothing: after hours without mail,
// whether it was away, or connected and its gateway died.
func TestC6NoFalseAlarm(t *testing.T) {
	t.Parallel()
	for name, idle := range map[string]func(w *world, c *session){
		"away": func(_ *world, c *session) { c.leave() },
		"gateway died": func(w *world, c *session) {
			before := w.store.at(absent).Position
			w.r.keepUp(context.Background())
			w.eventually(func() bool { w.r.commit(context.Background()); return w.store.at(absent).Position > before })
			c.left = true
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			w := setup(t, func(o *Options) { o.RingBytes, o.Now = 500, clock.now })
			w.store.now = clock.now
			a, b, c := w.agent("a", client(0)), w.agent("b", client(0)), w.agent("absent", client(0))
			w.warm(a, c)
			c.ack(1)
			w.settled()
			if name == "away" {
				idle(w, c)
			}
			clock.add(time.Hour)
			w.traffic(a, b, 100)
			entries := w.log.Entries(0)
			w.log.Trim(0, entries[len(entries)/2].Offset)
			if name != "away" {
				idle(w, c)
				a.leave()
				b.leave()
				w.start(func(o *Options) { o.RingBytes, o.Now = 500, clock.now })
			}
			c = w.agent("absent", client(0))
			w.eventually(func() bool { c.pump(); return c.live() })
			if told := c.told(); len(told) != 0 {
				t.Fatalf("told %v", told)
			}
			if a.left {
				a = w.agent("a", client(0))
			}
			a.send(absent, "new", "")
			c.wants("new")
		})
	}
}

// Others took an address for absent shortly after a session had begun: their
// note would have outlived the session, which has read what it stands for.
func TestC6NoteOfALateDirectory(t *testing.T) {
	t.Parallel()
	clock := newClock()
	w := setup(t, func(o *Options) { o.Now, o.Presence = clock.now, &crowd{} })
	a, c := w.agent("a", client(0)), w.agent("absent", client(0))
	w.warm(a, c)
	c.ack(1)
	w.store.set(func() { w.store.notes[absent] = 1 })
	ctx := context.Background()
	w.r.recheckNotes(ctx)
	w.r.commit(ctx)
	if _, ok := w.store.noteOf(absent); !ok {
		t.Fatal("deleted although others may still write it")
	}
	clock.add(time.Minute)
	w.r.recheckNotes(ctx)
	w.eventually(func() bool { w.r.commit(ctx); _, ok := w.store.noteOf(absent); return !ok })
}

// Rows are removed when everything that the log holds is newer, and never
// without a bound on age.
func TestExpiry(t *testing.T) {
	t.Parallel()
	clock := newClock()
	w := setup(t, func(o *Options) { o.Now = clock.now })
	expired := func() int {
		w.store.mu.Lock()
		defer w.store.mu.Unlock()
		return len(w.store.expired)
	}
	ctx := context.Background()
	w.r.expire(ctx)
	if expired() != 0 {
		t.Fatal("rows were removed although messages are kept without end")
	}
	w.r.retention = time.Hour
	born := clock.now()
	clock.add(100 * time.Hour)
	w.r.expire(ctx)
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if len(w.store.expired) != 3 {
		t.Fatalf("removed %d kinds of rows", len(w.store.expired))
	}
	for _, before := range w.store.expired {
		// The broker still has the first entry, whatever its age.
		if !before.Before(born) {
			t.Errorf("removed what is older than %v; the log begins at %v", before, born)
		}
	}
}

// Sessions that go on keep their rows.
func TestTouch(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.agent("b", client(0))
	w.r.touch(context.Background())
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if len(w.store.touched) != 1 || w.store.touched[0].Address != b.name || w.store.touched[0].Workspace != "w" {
		t.Fatalf("touched %v", w.store.touched)
	}
}
