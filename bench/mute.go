package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// muteCell measures the memory that sessions take which do not read, against
// what the gateway is allowed to keep for each, and of idle ones, against idle
// streams of the relay.
func muteCell(o options, l load) cell {
	l.Payload, l.Unacked = mutePayload, 512 // so that bytes are the limit, not messages
	return cell{
		Name: cellMute, Title: fmt.Sprintf("%d sessions that do not read, %d MB each", o.mute, muteBytes/1_000_000), Load: l,
		Systems: []string{nameRelay, nameRabbitMQ}, takes: time.Duration(15+o.mute/10) * time.Second,
		open: func(_ context.Context, s *site, c cell, _ int) (stage, error) {
			return &mute{site: s, load: c.Load, idle: idleSessions, mute: o.mute}, nil
		},
	}
}

const (
	// idleSessions are enough that what a process has to spare when they come
	// makes no difference.
	idleSessions = 1000
	mutePayload  = 4096
	// muteBytes is what waits for each session.
	muteBytes = 2_000_000
	// muteQueue is what the gateway may keep of it in memory.
	muteQueue = 1 << 20
)

type mute struct {
	site       *site
	load       load
	idle, mute int // sessions
	changed    bool
}

// close starts the gateway that the other cells measure.
func (m *mute) close() error {
	if !m.changed {
		return nil
	}
	return m.site.restart(context.Background(), nameRabbitMQ)
}

// run measures fresh processes, so that nothing of before hides what is taken.
func (m *mute) run(ctx context.Context, system string, round int) (outcome, error) {
	if system == nameRelay {
		c, err := m.site.relay(ctx, "relay-"+strconv.Itoa(round))
		if err != nil {
			return outcome{}, err
		}
		defer m.site.end(c)
		idle, err := m.measureIdle(ctx, target{addr: c.addr, codec: newCodec()}, c.pid)
		return outcome{Idle: idle}, err
	}
	fresh := func() (t target, pid int, err error) {
		m.changed = true
		err = m.site.restart(ctx, system,
			"AETHER_SESSION_QUEUE_BYTES="+strconv.Itoa(muteQueue),
			"AETHER_SESSION_WRITE_TIMEOUT=1h", // they are blocked on purpose
			"AETHER_STREAMS_RECENT_BYTES=1MiB")
		if err != nil {
			return t, 0, err
		}
		return m.site.systems[system].(*server).target, m.site.gateways[system].pid, nil
	}
	t, pid, err := fresh()
	if err != nil {
		return outcome{}, err
	}
	idle, err := m.measureIdle(ctx, t, pid)
	if err != nil {
		return outcome{}, err
	}
	if t, pid, err = fresh(); err != nil {
		return outcome{}, err
	}
	o, err := m.measureMute(ctx, t, pid)
	o.Idle = idle
	return o, err
}

// connect opens sessions, each for so many messages, a few at a time.
func (m *mute) connect(ctx context.Context, t target, run uint64, sessions int, each uint64) ([]*taker, error) {
	const atOnce = 8
	takers, errs := make([]*taker, sessions), make([]error, atOnce)
	var wg sync.WaitGroup
	for first := range atOnce {
		wg.Go(func() {
			for i := first; i < sessions && errs[first] == nil; i += atOnce {
				takers[i], errs[first] = t.taker(ctx, muteName(run, i), run, 0, each, m.load.Unacked)
			}
		})
	}
	wg.Wait()
	err := errors.Join(errs...)
	if err != nil {
		cutAll(takers)
	}
	return takers, err
}

func muteName(run uint64, i int) string { return fmt.Sprintf("mute-%d-%d", run, i) }

// cutAll ends what is left of the sessions.
func cutAll(takers []*taker) {
	for _, k := range takers {
		if k != nil {
			k.cut()
		}
	}
}

// measureIdle returns the memory of a session without messages.
func (m *mute) measureIdle(ctx context.Context, t target, pid int) (float64, error) {
	bare, err := settledMemory(ctx, pid)
	if err != nil {
		return 0, err
	}
	takers, err := m.connect(ctx, t, runs.Add(1), m.idle, 0)
	if err != nil {
		return 0, err
	}
	defer cutAll(takers)
	idle, err := settledMemory(ctx, pid)
	return perSession(bare, idle, m.idle), err
}

// measureMute measures what messages take that wait for who does not read, and
// then lets them read: all must be there.
func (m *mute) measureMute(ctx context.Context, t target, pid int) (o outcome, err error) {
	run, each := runs.Add(1), uint64(muteBytes/m.load.Payload)
	takers, err := m.connect(ctx, t, run, m.mute, each)
	if err != nil {
		return o, err
	}
	defer cutAll(takers)
	f, err := t.feeder(ctx, "feeder", m.load.Window)
	if err != nil {
		return o, err
	}
	defer func() {
		sends, leaveErr := f.leave(ctx)
		o.Faults.add(sends)
		err = errors.Join(err, leaveErr)
	}()
	bare, err := settledMemory(ctx, pid)
	if err != nil {
		return o, err
	}
	if err := m.send(ctx, f, run, each); err != nil {
		return o, err
	}
	full, err := settledMemory(ctx, pid)
	if err != nil {
		return o, err
	}
	o.Full = perSession(bare, full, m.mute)
	return o, m.listen(&o, takers, each)
}

// send sends messages to each of the sessions, in turn.
func (m *mute) send(ctx context.Context, f *feeder, run, each uint64) error {
	templates := make([]*template, m.mute)
	for i := range templates {
		var err error
		if templates[i], err = newTemplate(address(muteName(run, i)), m.load.Payload, run, false); err != nil {
			return err
		}
	}
	for number := uint64(1); number <= each; number++ {
		for _, t := range templates {
			if err := f.send(ctx, t, number); err != nil {
				return err
			}
		}
	}
	return f.await(ctx, 0)
}

// listen lets the sessions read at last: all must be there.
func (m *mute) listen(o *outcome, takers []*taker, each uint64) error {
	errs, wrong := make([]error, len(takers)), make([]faults, len(takers))
	limit := readLimit(each * uint64(len(takers)))
	var wg sync.WaitGroup
	for i, k := range takers {
		wg.Go(func() { wrong[i], errs[i] = k.take(limit) })
	}
	wg.Wait()
	for i, k := range takers {
		o.Faults.add(wrong[i])
		o.Messages += k.took
	}
	return errors.Join(errs...)
}

// Ceilings of memory: times what the gateway is allowed to keep, and times an
// idle stream of the relay. To the first come what the transport keeps for a
// stream, the buffers' unused ends, and as much again as is alive, which the
// collector allows itself. Who kept all that waits would be at five.
const (
	ceilingMute = 4
	ceilingIdle = 1.5
)

// memories are the figures of sessions that do nothing.
func (r *report) memories() []row {
	idle := func(o *outcome) float64 { return o.Idle / 1024 }
	relay := r.rounds(cellMute, nameRelay, idle)
	gateway := compare("gateway, memory of an idle session", "KiB", r.rounds(cellMute, nameRabbitMQ, idle), "relay", relay)
	gateway.AtMost = ceilingIdle
	full := r.rounds(cellMute, nameRabbitMQ, func(o *outcome) float64 { return o.Full / 1024 })
	mute := compare("  of one that does not read, in addition", "KiB", full, "session.queue_bytes", repeated(muteQueue/1024, len(full)))
	mute.AtMost = ceilingMute
	return []row{compare("relay, memory of an idle stream", "KiB", relay, "", nil), gateway, mute}
}
