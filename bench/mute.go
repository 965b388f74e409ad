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
			return &mute{s, c.Load, o.mute}, nil
		},
	}
}

const (
	mutePayload = 4096
	// muteBytes is what waits for each session.
	muteBytes = 2_000_000
	// muteQueue is what the gateway may keep of it in memory.
	muteQueue = 1 << 20
)

type mute struct {
	site     *site
	load     load
	sessions int
}

// close starts the gateway that the other cells measure.
func (m *mute) close() error {
	return m.site.restart(context.Background(), nameRabbitMQ)
}

// run measures a fresh process, so that nothing of before hides what it takes.
func (m *mute) run(ctx context.Context, system string, round int) (o outcome, err error) {
	if system == nameRelay {
		c, err := m.site.relay(ctx, "relay-"+strconv.Itoa(round))
		if err != nil {
			return o, err
		}
		defer m.site.end(c)
		return m.measure(ctx, target{addr: c.addr, codec: newCodec()}, c.pid, false)
	}
	err = m.site.restart(ctx, system,
		"AETHER_SESSION_QUEUE_BYTES="+strconv.Itoa(muteQueue),
		"AETHER_SESSION_WRITE_TIMEOUT=1h", // they are blocked on purpose
		"AETHER_STREAMS_RECENT_BYTES=1MiB")
	if err != nil {
		return o, err
	}
	return m.measure(ctx, m.site.systems[system].(*server).target, m.site.gateways[system].pid, true)
}

func (m *mute) measure(ctx context.Context, t target, pid int, stores bool) (o outcome, err error) {
	run := runs.Add(1)
	each := uint64(muteBytes / m.load.Payload)
	f, err := t.feeder(ctx, "feeder", m.load.Window)
	if err != nil {
		return o, err
	}
	var takers []*taker
	defer func() {
		for _, k := range takers {
			k.cut()
		}
		sends, leaveErr := f.leave(ctx)
		o.Faults.add(sends)
		err = errors.Join(err, leaveErr)
	}()
	if stores {
		// What every gateway that works has, is not a session's.
		if err := m.send(ctx, f, "away-%d-%d", run, others, 4*muteQueue/uint64(m.load.Payload)/others+1); err != nil {
			return o, err
		}
	}
	bare, err := settledMemory(ctx, pid)
	if err != nil {
		return o, err
	}
	for i := range m.sessions {
		k, err := t.taker(ctx, fmt.Sprintf("mute-%d-%d", run, i), run, 0, each, m.load.Unacked)
		if err != nil {
			return o, err
		}
		takers = append(takers, k)
	}
	idle, err := settledMemory(ctx, pid)
	if err != nil {
		return o, err
	}
	o.Idle = perSession(bare, idle, m.sessions)
	if !stores {
		return o, nil
	}
	if err := m.send(ctx, f, "mute-%d-%d", run, m.sessions, each); err != nil {
		return o, err
	}
	full, err := settledMemory(ctx, pid)
	if err != nil {
		return o, err
	}
	o.Full = perSession(idle, full, m.sessions)
	return o, m.listen(&o, takers, each)
}

// send sends messages to each of some agents, in turn.
func (m *mute) send(ctx context.Context, f *feeder, name string, run uint64, receivers int, each uint64) error {
	templates := make([]*template, receivers)
	for i := range templates {
		var err error
		if templates[i], err = newTemplate(address(fmt.Sprintf(name, run, i)), m.load.Payload, run, false); err != nil {
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
// collector allows itself.
const (
	ceilingMute = 3
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
