package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/amqp"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"
)

// reconnectCell measures an agent that was away and comes back to many messages
// of its own, against the stream client that reads as many.
func reconnectCell(o options, l load) cell {
	return cell{
		Name: cellReconnect, Title: fmt.Sprintf("%d waiting", o.waiting), Load: l,
		Systems: []string{nameRaw, nameRabbitMQ, nameEmbedded}, takes: 4 * time.Second,
		open: func(_ context.Context, s *site, c cell, _ int) (stage, error) {
			return &reconnect{s, c.Load, uint64(o.waiting)}, nil
		},
	}
}

type reconnect struct {
	site *site
	load load
	n    uint64
}

func (r *reconnect) close() error { return nil }

func (r *reconnect) run(ctx context.Context, system string, _ int) (outcome, error) {
	if system == nameRaw {
		return r.site.systems[nameRaw].(*raw).readWaiting(ctx, r.load, r.n)
	}
	var o outcome
	err := r.site.counting(ctx, system, &o, func() (err error) {
		o, err = r.comeBack(ctx, system)
		return err
	})
	return o, err
}

// profiled begins a CPU profile of a gateway's reading, if one is wanted, and
// returns what ends it.
func (r *reconnect) profiled(system string) (end func() error, err error) {
	child := r.site.profiles[system]
	if child == nil {
		return func() error { return nil }, nil
	}
	file, err := filepath.Abs(filepath.Join(r.site.options.profile, system+"-"+cellReconnect))
	if err != nil {
		return nil, err
	}
	_, err = child.ask("profile " + file)
	return func() error {
		_, err := child.ask("end " + file)
		return err
	}, err
}

// readLimit is how long reading may take, at a tenth of what is slow.
func readLimit(messages uint64) time.Duration {
	return patience + time.Duration(messages/2000)*time.Second
}

// comeBack lets an agent be known, go, and come back to n messages. Then it is
// sent one more, which must be all that comes the next time: what it has
// acknowledged is done.
func (r *reconnect) comeBack(ctx context.Context, system string) (outcome, error) {
	const name = "returner"
	server := r.site.systems[system].(*server)
	t := server.target
	run := runs.Add(1)
	tmpl, err := newTemplate(address(name), r.load.Payload, run, false)
	if err != nil {
		return outcome{}, err
	}
	f, err := t.feeder(ctx, "feeder", r.load.Window)
	if err != nil {
		return outcome{}, err
	}
	var total faults
	o, err := func() (o outcome, err error) {
		if _, err := r.receive(ctx, t, name, run, 0, 0, &total); err != nil {
			return o, err
		}
		if err := r.store(ctx, 0, r.n, f, tmpl); err != nil {
			return o, err
		}
		end, err := r.profiled(system)
		if err != nil {
			return o, err
		}
		before := usageOf(server.cpu)
		k, err := r.receive(ctx, t, name, run, 0, r.n, &total)
		o.CPU = before.since(server.cpu)
		if err := errors.Join(err, end()); err != nil {
			return o, err
		}
		o.Messages = k.took
		if k.end != 0 {
			o.Elapsed = time.Duration(k.end - k.began)
		}
		if k.first != 0 {
			o.First = []time.Duration{time.Duration(k.first - k.began)}
		}
		if err := r.store(ctx, r.n, r.n+1, f, tmpl); err != nil {
			return o, err
		}
		_, err = r.receive(ctx, t, name, run, r.n, r.n+1, &total)
		return o, err
	}()
	sends, leaveErr := f.leave(ctx)
	total.add(sends)
	o.Faults = total
	return o, errors.Join(err, leaveErr)
}

// store sends messages after one number and up to another, and waits until they
// are stored.
func (r *reconnect) store(ctx context.Context, after, last uint64, f *feeder, tmpl *template) error {
	for number := after + 1; number <= last; number++ {
		if err := f.send(ctx, tmpl, number); err != nil {
			return err
		}
	}
	return f.await(ctx, 0)
}

// receive connects and takes messages after one number and up to another.
// Without any it connects and leaves.
func (r *reconnect) receive(ctx context.Context, t target, name string, run, after, last uint64, total *faults) (*taker, error) {
	k, err := t.taker(ctx, name, run, after, last, r.load.Unacked)
	if err != nil {
		return nil, err
	}
	if after == last {
		k.end = k.open
		k.leave()
	}
	faults, err := k.take(readLimit(last - after))
	total.add(faults)
	return k, err
}

const rawWaiting = "bench-raw-waiting"

// readWaiting stores n messages, one in each entry, and measures how a consumer
// reads them that comes then.
func (r *raw) readWaiting(ctx context.Context, l load, n uint64) (o outcome, err error) {
	env, err := r.environment()
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, env.Close()) }()
	if err := declareRaw(env, rawWaiting); err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, env.DeleteStream(rawWaiting)) }()
	f := newFlow(l)
	if err := f.store(ctx, env, n); err != nil {
		return o, fmt.Errorf("raw: %w", err)
	}
	list := []process{clients}
	before := usageOf(list)
	begin := now()
	own, err := r.environment() // as a client that comes back: with a connection of its own
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	first := make(chan int64, 1)
	all := make(chan int64, 1)
	consumer, err := own.NewConsumer(rawWaiting, func(c stream.ConsumerContext, m *amqp.Message) {
		f.take(c, m)
		at := f.delivered.Load()
		if at == 1 {
			first <- now()
		}
		if at == n {
			all <- now()
		}
	}, stream.NewConsumerOptions().SetOffset(stream.OffsetSpecification{}.First()).SetManualCommit().SetCRCCheck(true))
	if err != nil {
		return o, err
	}
	timeout := time.NewTimer(readLimit(n))
	defer timeout.Stop()
	select {
	case end := <-all:
		o.Elapsed = time.Duration(end - begin)
		o.CPU = before.since(list)
	case <-timeout.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	select {
	case at := <-first:
		o.First = []time.Duration{time.Duration(at - begin)}
	default:
	}
	err = errors.Join(err, consumer.Close())
	o.Messages = f.delivered.Load()
	o.Faults = f.sequence.until(n)
	o.Faults.Refused = f.refused
	return o, err
}

// store sends n messages and waits for their confirms.
func (f *flow) store(ctx context.Context, env *stream.Environment, n uint64) error {
	confirming, err := f.produce(env, rawWaiting)
	if err != nil {
		return err
	}
	abandon := context.AfterFunc(ctx, func() { close(f.stop) })
	for number := uint64(1); number <= n && err == nil && f.room(); number++ {
		err = f.emit(number)
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for err == nil && f.confirmed.Load() < n {
		select {
		case <-f.changed:
		case <-timeout.C:
			err = errors.New("messages are not confirmed")
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	abandon()
	err = errors.Join(err, f.producer.Close())
	<-confirming
	return err
}

func firstAfter(p float64) func(*outcome) float64 {
	return func(o *outcome) float64 { return float64(percentile(o.First, p)) / 1e6 }
}

func lastAfter(p float64) func(*outcome) float64 {
	return func(o *outcome) float64 { return float64(percentile(o.Last, p)) / 1e6 }
}

// returns are the figures of an agent that comes back.
func (r *report) returns() []row {
	raw := r.rounds(cellReconnect, nameRaw, throughput)
	rows := []row{compare("raw, reads what waits", "msg/s", raw, "", nil)}
	for _, name := range []string{nameRabbitMQ, nameEmbedded} {
		w := compare(name+", reads what waits", "msg/s", r.rounds(cellReconnect, name, throughput), "raw", raw)
		if name == nameRabbitMQ {
			w.AtLeast = floorReconnect
		}
		rows = append(rows, w)
	}
	rows = append(rows, r.passes(cellReconnect, "  passes over the log for it"))
	reader := r.rounds(cellReconnect, nameRaw, perMessage("clients"))
	rows = append(rows, compare("CPU per message: reader with raw", "µs", reader, "", nil))
	for _, name := range []string{nameRabbitMQ, nameEmbedded} {
		rows = append(rows, compare("CPU per message: "+name, "µs", r.rounds(cellReconnect, name, perMessage("server")), "raw", reader))
	}
	raw = r.rounds(cellReconnect, nameRaw, firstAfter(1))
	rows = append(rows, compare("raw, first of what waits", "ms", raw, "", nil))
	for _, name := range []string{nameRabbitMQ, nameEmbedded} {
		rows = append(rows, compare(name+", first of what waits", "ms", r.rounds(cellReconnect, name, firstAfter(1)), "raw", raw))
	}
	return rows
}

// floorReconnect is what reading what waits is held to, times raw's.
const floorReconnect = 1
