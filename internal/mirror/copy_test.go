package mirror_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aether-gateway/gateway/internal/mirror"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/feed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A copy is refreshed at the beginning, and then for each change of its
// subjects, and not for others.
func TestCopyFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hub feed.Hub
		var refreshed atomic.Int64
		c := mirror.Keep(mirror.Options{Name: "rules", Feed: &hub, Subjects: []store.Subject{store.SubjectRules}, Refresh: func(context.Context) error {
			refreshed.Add(1)
			return nil
		}})
		defer c.Close()
		<-c.Known()
		synctest.Wait()
		begun := refreshed.Load()
		hub.Changed(store.SubjectKeys)
		synctest.Wait()
		if refreshed.Load() != begun {
			t.Error("refreshed for another subject")
		}
		for i := range 3 {
			hub.Changed(store.SubjectRules)
			synctest.Wait()
			if refreshed.Load() != begun+int64(i)+1 {
				t.Fatalf("%d refreshes after %d changes", refreshed.Load()-begun, i+1)
			}
		}
		hub.Missed()
		synctest.Wait()
		if refreshed.Load() != begun+4 {
			t.Error("not refreshed after something may have been missed")
		}
	})
}

// A copy that could not be refreshed is not known, and is tried again.
func TestCopyRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hub feed.Hub
		var away atomic.Bool
		away.Store(true)
		c := mirror.Keep(mirror.Options{Feed: &hub, Refresh: func(context.Context) error {
			if away.Load() {
				return errors.New("away")
			}
			return nil
		}})
		defer c.Close()
		<-time.After(10 * time.Second)
		select {
		case <-c.Known():
			t.Fatal("known, though it was never read")
		default:
		}
		away.Store(false)
		<-time.After(2 * time.Second)
		select {
		case <-c.Known():
		default:
			t.Fatal("not known 2 s after the store answers")
		}
	})
}

// A refresh that hangs ends after its time, and without a feed a copy is
// refreshed all the same.
func TestCopyWithoutFeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		c := mirror.Keep(mirror.Options{Refresh: func(ctx context.Context) error {
			if calls++; calls == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}})
		<-c.Known()
		<-time.After(10 * time.Second)
		c.Close()
		if calls < 10 {
			t.Errorf("refreshed %d times", calls)
		}
		synctest.Wait()
	})
}
