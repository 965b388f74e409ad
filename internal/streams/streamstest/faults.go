package streamstest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

// runFaults runs the cases that hit the broker, as far as the driver has such
// faults.
func runFaults(t *testing.T, h Harness) {
	has := h.faultsOf(t)
	for _, fault := range []struct {
		name    string
		can     bool
		on, off func(t *testing.T, log Log)
		silent  bool // connections stay open
	}{
		{
			"Killed", has.Kill != nil,
			func(t *testing.T, log Log) { log.Kill(t) },
			func(t *testing.T, log Log) { log.Restart(t) },
			false,
		},
		{
			"Stopped", has.Stop != nil,
			func(t *testing.T, log Log) { log.Stop(t) },
			func(t *testing.T, log Log) { log.Cont(t) },
			true,
		},
		{
			"Blackholed", has.Blackhole != nil,
			func(t *testing.T, log Log) { log.Blackhole(t, true) },
			func(t *testing.T, log Log) { log.Blackhole(t, false) },
			true,
		},
	} {
		if !fault.can {
			continue
		}
		during := func(t *testing.T, log Log, f func()) {
			t.Helper()
			fault.on(t, log)
			healed := false
			heal := func() {
				if !healed {
					healed = true
					fault.off(t, log)
				}
			}
			defer heal() // also when f ends the test
			f()
			heal()
		}
		t.Run("Broker"+fault.name, func(t *testing.T) {
			log := h.New(t, 2)
			f := startFlow(t, log, flowOptions{partitions: 2, senders: 10, size: 200, timeout: 2 * time.Second})
			f.awaitStored(1000)
			during(t, log, f.awaitTrouble)
			f.awaitRecovery(h.Recovery)
			f.finish()
		})
		t.Run("Broker"+fault.name+"Briefly", func(t *testing.T) {
			log := h.New(t, 2)
			f := startFlow(t, log, flowOptions{partitions: 2, senders: 10, size: 200})
			for range 2 {
				during(t, log, func() {})
				f.awaitRecovery(h.Recovery)
			}
			f.finish()
		})
		t.Run("CallsEndWhileBroker"+fault.name, func(t *testing.T) {
			log := h.New(t, 1)
			d := open(t, log)
			p, r := produce(t, d, 0, newName()), read(t, d, 0, streams.Next())
			p.send(1, "before")
			p.awaitConfirmed(1)
			during(t, log, func() { callsEnd(t, d, p, r, fault.silent) })
			fill(t, open(t, log), 0, 1)
		})
	}
}

// faultsOf asks for the faults by a log that is not used further.
func (h Harness) faultsOf(t *testing.T) Faults {
	var has Faults
	t.Run("Opens", func(t *testing.T) {
		log := h.New(t, 1)
		fill(t, open(t, log), 0, 1)
		has = log.Faults
	})
	return has
}

// callsEnd: nothing hangs for longer than its context while the broker is not
// there.
func callsEnd(t *testing.T, d streams.Driver, p streams.Producer, r streams.Consumer, silent bool) {
	t.Helper()
	ends := func(what string, call func(ctx context.Context)) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		done := make(chan struct{})
		begin := time.Now()
		go func() {
			defer close(done)
			call(ctx)
		}()
		await(t, done, what)
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("%s took %v with a context of 1s", what, took)
		}
	}
	ends("opening a producer", func(ctx context.Context) {
		if opened, err := d.OpenProducer(ctx, 0, newName(), func(uint64) {}); err == nil {
			_ = opened.Close()
			t.Error("a producer opens while the broker is away")
		}
	})
	ends("opening a consumer", func(ctx context.Context) {
		if opened, err := d.OpenConsumer(ctx, 0, streams.First(), func(streams.Entry) {}); err == nil {
			_ = opened.Close()
			t.Error("a consumer opens while the broker is away")
		}
	})
	if !silent {
		await(t, p.Done(), "Done of a producer whose broker was killed")
		await(t, r.Done(), "Done of a consumer whose broker was killed")
	}
	for what, c := range map[string]io.Closer{"producer": p, "consumer": r, "driver": d} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = c.Close()
		}()
		await(t, done, "closing a "+what)
	}
}

// feedName is the producer name of [Feed].
const feedName = "feed"

// Feed is what the child process of [Harness.KillProcess] does: it stores
// numbered entries in partition 0 and writes the number of each confirmed one
// to out, on a line, until it is killed or something fails.
func Feed(d streams.Driver, out io.Writer) error {
	confirmed := make(chan uint64, 64)
	slots := make(chan struct{}, cap(confirmed)) // so that confirmed never blocks
	p, err := d.OpenProducer(context.Background(), 0, feedName, func(id uint64) { confirmed <- id })
	if err != nil {
		return err
	}
	go func() {
		for id := p.LastID() + 1; ; id++ {
			slots <- struct{}{}
			if p.Send(id, entryOf(fmt.Sprint(id))) != nil {
				return
			}
		}
	}()
	for {
		select {
		case id := <-confirmed:
			if _, err := fmt.Fprintln(out, id); err != nil {
				return err
			}
			<-slots
		case <-p.Done():
			return streams.ErrClosed
		}
	}
}

// RunFeeder starts cmd, a process that runs [Feed] on its standard output,
// kills it when it has reported at least so many entries, and returns the
// highest number that it had reported.
func RunFeeder(t *testing.T, cmd *exec.Cmd, atLeast int) (confirmed uint64) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hangs := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer hangs.Stop()
	lines := bufio.NewScanner(out)
	count := 0
	for lines.Scan() { // past the kill, to the last whole line
		id, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			continue
		}
		confirmed = max(confirmed, id)
		if count++; count == atLeast {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait() // killed
	if count < atLeast {
		t.Fatalf("the feeding process ended after %d reports, want %d", count, atLeast)
	}
	return confirmed
}

// processKilled: what a killed process has seen confirmed is there, once, and
// its name goes on where it was.
func processKilled(t *testing.T, h Harness) {
	confirmed, log := h.KillProcess(t, 1000)
	d := open(t, log)
	stored := readAll(t, d, 0)
	if uint64(len(stored)) < confirmed {
		t.Errorf("%d entries were confirmed, %d are stored", confirmed, len(stored))
	}
	checkTexts(t, "the log", stored, numbers(1, len(stored)))

	p := produce(t, d, 0, feedName)
	last := p.LastID()
	if last != uint64(len(stored)) {
		t.Errorf("the last id is %d, stored are %d", last, len(stored))
	}
	p.send(last, "again")
	p.send(last+1, fmt.Sprint(last+1))
	p.awaitConfirmed(last + 1)
	checkTexts(t, "the log after going on", withoutNames(readAll(t, d, 0)), numbers(1, int(last)+1))
}

func withoutNames(entries []streams.Entry) (list []streams.Entry) {
	for _, e := range entries {
		if !isName(text(e)) {
			list = append(list, e)
		}
	}
	return list
}
