package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/postgres"
)

// rival is another gateway's connection, in the middle of a transaction.
type rival struct {
	t  *testing.T
	db *sql.DB
	tx *sql.Tx
}

// interleave lets a rival begin a transaction with a statement, starts call,
// waits until that waits for the rival, and lets the rival commit.
func interleave(t *testing.T, url, statement string, call func() error) {
	t.Helper()
	err := postgres.WithDB(context.Background(), url, func(ctx context.Context, db *sql.DB) error {
		r := &rival{t: t, db: db}
		var err error
		if r.tx, err = db.BeginTx(ctx, nil); err != nil {
			return err
		}
		defer func() { _ = r.tx.Rollback() }()
		if _, err := r.tx.ExecContext(ctx, statement); err != nil {
			return err
		}
		done := make(chan error, 1)
		go func() { done <- call() }()
		if err := r.untilBlocked(ctx, done); err != nil {
			return err
		}
		return errors.Join(r.tx.Commit(), <-done)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// untilBlocked asks until somebody waits for a lock in this database.
func (r *rival) untilBlocked(ctx context.Context, done <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for waiting := 0; waiting == 0; {
		select {
		case err := <-done:
			return errors.Join(errors.New("the call did not wait for the rival"), err)
		default:
		}
		err := r.db.QueryRowContext(ctx, `select count(*) from pg_locks l join pg_stat_activity a using (pid)
			where not l.granted and a.datname = current_database()`).Scan(&waiting)
		if err != nil {
			return err
		}
	}
	return nil
}

// Each pair of changes of one note, with the second one waiting for the first:
// it judges what the first has left, not what it saw when it began.
func TestWaitingCallsLookAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := withTables(t).URL()
	s := open(t, url, postgres.Options{})
	const none = -1
	count := func(want int64, call func() (int64, error)) func() error {
		return func() error {
			n, err := call()
			if err == nil && n != want {
				t.Errorf("changed %d, want %d", n, want)
			}
			return err
		}
	}
	raise := func() (int64, error) {
		return s.RaiseNotes(ctx, []store.Raise{{Address: "a", From: 10, To: 20}})
	}
	remove := func() (int64, error) { return s.DeleteNotes(ctx, []store.Note{{Address: "a", Position: 10}}) }
	note := func(position, want uint64) func() error {
		return func() error {
			got, err := s.NoteAbsence(ctx, []store.Note{{Address: "a", Position: position}})
			if err == nil && got[0] != want {
				t.Errorf("noted %d: %d, want %d", position, got[0], want)
			}
			return err
		}
	}
	expire := func() (int64, error) { return s.ExpireNotes(ctx, time.UnixMilli(500)) }
	const (
		lowers  = "update notes set position = 5 where address = 'a'"
		raises  = "update notes set position = 20 where address = 'a'"
		renews  = "update notes set written_at = 1000 where address = 'a'"
		deletes = "delete from notes where address = 'a'"
	)
	for name, test := range map[string]struct {
		rival string
		call  func() error
		want  int64
	}{
		"a raise after a lower note":    {lowers, count(0, raise), 5},
		"a raise after the same note":   {renews, count(1, raise), 20},
		"a raise after a deletion":      {deletes, count(0, raise), none},
		"a deletion after a lower note": {lowers, count(0, remove), 5},
		"a deletion after the same":     {renews, count(1, remove), none},
		"a deletion after a raise":      {raises, count(0, remove), 20},
		"a note after a raise":          {raises, note(12, 12), 12},
		"a note after a lower one":      {lowers, note(12, 5), 5},
		"a note after a deletion":       {deletes, note(12, 12), 12},
		"an expiry after a renewal":     {renews, count(0, expire), 10},
	} {
		exec(t, url, "delete from notes; insert into notes (address, position, workspace, written_at) values ('a', 10, '', 0)")
		interleave(t, url, test.rival, test.call)
		got, ok, err := s.Note(ctx, "a")
		if err != nil || ok != (test.want != none) || ok && got != uint64(test.want) {
			t.Errorf("%s: %d, %v, %v, want %d", name, got, ok, err, test.want)
		}
	}
}

func exec(t *testing.T, url, statement string) {
	t.Helper()
	err := postgres.WithDB(context.Background(), url, func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, statement)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A session that begins while the one before it ends waits for that, and is
// told of it; the end that waits for a beginning is fenced.
func TestEndsAndBeginningsWait(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := withTables(t).URL()
	s := open(t, url, postgres.Options{})
	begin := func(epoch uint64) store.Mark {
		t.Helper()
		m, err := s.BeginSession(ctx, store.Session{Identity: "i", Address: "a", Epoch: epoch})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	begin(1)
	interleave(t, url, "update marks set clean = 9, ended_at = 1", func() error {
		if m, err := s.BeginSession(ctx, store.Session{Identity: "i", Address: "a", Epoch: 2}); err != nil || !m.Clean || m.Position != 9 {
			t.Errorf("%+v, %v", m, err)
		}
		return nil
	})
	interleave(t, url, "update marks set epoch = 3", func() error {
		return s.CommitClean(ctx, []store.Commit{{Identity: "i", Address: "a", Position: 12, Epoch: 2}})
	})
	if m, err := s.Mark(ctx, "i", "a"); err != nil || m.Clean {
		t.Errorf("%+v, %v", m, err)
	}
	interleave(t, url, "update marks set epoch = 8", func() error {
		if _, err := s.BeginSession(ctx, store.Session{Identity: "i", Address: "a", Epoch: 7}); !errors.Is(err, store.ErrFenced) {
			t.Errorf("got %v", err)
		}
		return nil
	})
}

// What is renewed while its expiry waits for it stays.
func TestExpiryLooksAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := withTables(t).URL()
	s := open(t, url, postgres.Options{})
	if err := s.CommitClean(ctx, []store.Commit{{Identity: "i", Address: "a", Position: 7, Epoch: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := s.LearnMembership(ctx, "u", []string{"w"}, time.UnixMilli(1)); err != nil {
		t.Fatal(err)
	}
	exec(t, url, "update positions set moved_at = 0; update marks set seen_at = 0; update members set changed_at = 0")
	for renewal, expire := range map[string]func(context.Context, time.Time) (int64, error){
		"update positions set moved_at = 1000":  s.ExpirePositions,
		"update marks set seen_at = 1000":       s.ExpireMarks,
		"update members set until = 1000":       s.ExpireMemberships,
		"update members set ruling = 2":         s.ExpireMemberships,
		"update members set changed_at = 10000": s.ExpireMemberships,
	} {
		interleave(t, url, renewal, func() error {
			n, err := expire(ctx, time.UnixMilli(500))
			if err == nil && n != 0 {
				t.Errorf("%s: %d expired", renewal, n)
			}
			return err
		})
		exec(t, url, "update members set until = 1, ruling = 0, changed_at = 0")
	}
}

// Changes of memberships wait for each other, so that none becomes visible
// behind one with a higher number.
func TestChangesBecomeVisibleInOrder(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := withTables(t).URL()
	s := open(t, url, postgres.Options{})
	if err := s.RuleMembership(ctx, "first", "w", store.RuledIn); err != nil {
		t.Fatal(err)
	}
	_, cursor, err := s.MembershipChanges(ctx, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	interleave(t, url, `update counters set value = value + 1 where name = 'members';
		insert into members select 'rival', 'w', 0, 1, value, 0 from counters where name = 'members'`, func() error {
		return s.LearnMembership(ctx, "late", []string{"w"}, time.Unix(4_000_000_000, 0))
	})
	list, _, err := s.MembershipChanges(ctx, cursor, 10)
	if err != nil || len(list) != 2 || list[0].User != "rival" || list[1].User != "late" {
		t.Errorf("%+v, %v", list, err)
	}
}
