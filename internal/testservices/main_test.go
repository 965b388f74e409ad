package testservices

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// failure is a testing.TB that notes why it was failed.
type failure struct {
	testing.TB
	message string
}

func (f *failure) Helper() {}

func (f *failure) Fatal(args ...any) {
	f.message = fmt.Sprint(args...)
	runtime.Goexit()
}

func (f *failure) Fatalf(format string, args ...any) {
	f.Fatal(fmt.Sprintf(format, args...))
}

// failing runs do on a test of its own and returns why it failed, "" if not.
func failing(t *testing.T, do func(testing.TB)) string {
	t.Helper()
	f := &failure{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do(f)
	}()
	<-ended
	return f.message
}

// A machine without the servers must fail the tests and say what helps.
func TestMissingPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for name, start := range map[string]func(testing.TB){
		"RabbitMQ": func(tb testing.TB) { NewBroker(tb) }, // epmd is looked up there
		"Redis":    func(tb testing.TB) { Redis(tb) },
	} {
		if got := failing(t, start); !strings.Contains(got, "run scripts/deps.sh") {
			t.Errorf("%s: failed with %q; want a hint at scripts/deps.sh", name, got)
		}
	}
}

func TestSharedServersArePreserved(t *testing.T) {
	t.Parallel()
	broker, database := RabbitMQ(t), Postgres(t)
	for name, fault := range map[string]func(){
		"Broker.Kill":    broker.Kill,
		"Broker.Stop":    broker.Stop,
		"Database.Kill":  database.Kill,
		"Database.Start": database.Start,
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s on a shared server did not panic", name)
				}
			}()
			fault()
		}()
	}
}

func TestSharedServersNeedMain(t *testing.T) {
	mainRuns.Store(false)
	defer mainRuns.Store(true)
	if got := failing(t, func(tb testing.TB) { RabbitMQ(tb) }); !strings.Contains(got, "TestMain") {
		t.Errorf("failed with %q; want a hint at TestMain", got)
	}
}
