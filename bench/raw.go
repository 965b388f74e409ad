package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/amqp"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"
	"go.opentelemetry.io/otel/metric/noop"
)

// raw is the second baseline: the stream client alone, a producer with
// confirms and a consumer, one message in each entry of the log.
type raw struct {
	url string
	cpu []process
}

var _ system = (*raw)(nil)

func (r *raw) name() string { return "raw" }

const (
	// rawWindow is how many messages may be unconfirmed: enough that the
	// client never waits for it.
	rawWindow = 10_000
	// rawQueue is the client's own queue.
	rawQueue  = 500
	rawStream = "bench-raw"
)

func (r *raw) environment() (*stream.Environment, error) {
	u, err := url.Parse(r.url)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return nil, err
	}
	o := stream.NewEnvironmentOptions().SetHost(u.Hostname()).SetPort(port).SetUser("guest").SetPassword("guest")
	o.SetReadBuffer(0).SetWriteBuffer(0) // the kernel's; the library's own are 300 msg/s on loopback
	o.SetMeterProvider(noop.NewMeterProvider())
	return stream.NewEnvironment(o)
}

// flow is a run of raw.
type flow struct {
	load      load
	run       uint64
	producer  *stream.Producer
	messages  []*amqp.AMQP10 // used again when they are confirmed
	payloads  [][]byte
	delivered atomic.Uint64
	confirmed atomic.Uint64
	sent      atomic.Uint64
	waiting   atomic.Bool
	opened    chan struct{}
	changed   chan struct{}
	stop      chan struct{}
	measure   atomic.Bool
	overslept uint64

	sequence sequence        // of the consumer
	oneWay   []time.Duration // of the consumer
	refused  uint64          // of the confirm loop
	receipt  []time.Duration // of the confirm loop
}

func (r *raw) run(ctx context.Context, l load) (outcome, error) {
	if l.Pairs != 1 {
		return outcome{}, errors.New("raw is measured with one pair only")
	}
	env, err := r.environment()
	if err != nil {
		return outcome{}, err
	}
	o, err := r.flow(ctx, env, l)
	return o, errors.Join(err, env.Close())
}

func declareRaw(env *stream.Environment, name string) error {
	options := stream.NewStreamOptions().SetMaxLengthBytes(stream.ByteCapacity{}.MB(500)).SetMaxSegmentSizeBytes(stream.ByteCapacity{}.MB(100))
	if err := env.DeclareStream(name, options); err != nil && !errors.Is(err, stream.StreamAlreadyExists) {
		return err
	}
	return nil
}

func newFlow(l load) *flow {
	f := &flow{
		load: l, run: runs.Add(1),
		opened: make(chan struct{}, 1), changed: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	for range 2 * rawWindow {
		payload := make([]byte, max(l.Payload, stampSize))
		f.payloads = append(f.payloads, payload)
		f.messages = append(f.messages, amqp.NewMessage(payload))
	}
	return f
}

// produce opens the producer on a stream. The channel that it returns is closed
// when, after the producer's end, all confirms are counted.
func (f *flow) produce(env *stream.Environment, name string) (_ <-chan struct{}, err error) {
	f.producer, err = env.NewProducer(name, stream.NewProducerOptions().
		SetQueueSize(rawQueue).SetBatchSize(rawQueue).SetConfirmationTimeOut(time.Minute))
	if err != nil {
		return nil, err
	}
	confirms := f.producer.NotifyPublishConfirmation()
	confirming := make(chan struct{})
	go func() {
		defer close(confirming)
		f.confirm(confirms)
	}()
	return confirming, nil
}

func (r *raw) flow(ctx context.Context, env *stream.Environment, l load) (outcome, error) {
	if err := declareRaw(env, rawStream); err != nil {
		return outcome{}, err
	}
	f := newFlow(l)
	consumer, err := env.NewConsumer(rawStream, f.take, stream.NewConsumerOptions().
		SetOffset(stream.OffsetSpecification{}.Next()).SetManualCommit().SetCRCCheck(true))
	if err != nil {
		return outcome{}, err
	}
	confirming, err := f.produce(env, rawStream)
	if err != nil {
		return outcome{}, errors.Join(err, consumer.Close())
	}
	sender := make(chan error, 1)
	go func() { sender <- f.send() }()

	o, err := f.count(ctx, r.cpu, sender)
	close(f.stop)
	if err == nil {
		err = <-sender
		f.drain()
	}
	err = errors.Join(err, f.producer.Close(), consumer.Close())
	<-confirming // the producer's end closes the channel
	if err != nil {
		return outcome{}, fmt.Errorf("raw: %w", err)
	}
	o.OneWay, o.Receipt, o.Overslept = f.oneWay, f.receipt, f.overslept
	o.Faults = f.sequence.until(f.sent.Load())
	o.Faults.Refused = f.refused
	return o, nil
}

func (f *flow) count(ctx context.Context, cpu []process, sender chan error) (outcome, error) {
	wait := func(d time.Duration) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case err := <-sender:
			sender <- err
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := wait(f.load.Warmup); err != nil {
		return outcome{}, err
	}
	f.measure.Store(true)
	used, delivered, confirmed, begin := usageOf(cpu), f.delivered.Load(), f.confirmed.Load(), time.Now()
	err := wait(f.load.Duration)
	o := outcome{Elapsed: time.Since(begin)}
	o.Messages = min(f.delivered.Load()-delivered, f.confirmed.Load()-confirmed)
	o.CPU = used.since(cpu)
	f.measure.Store(false)
	return o, err
}

func (f *flow) send() error {
	if f.load.Rate > 0 {
		return paced(f.load.Rate, f.stop, &f.overslept, f.emit)
	}
	for number := uint64(1); ; number++ {
		if !f.room() {
			return nil
		}
		select {
		case <-f.stop:
			return nil
		default:
		}
		if err := f.emit(number); err != nil {
			return err
		}
	}
}

// room waits until the window is open; it reports false if sending is to stop.
func (f *flow) room() bool {
	for f.sent.Load()-f.confirmed.Load() >= rawWindow {
		f.waiting.Store(true)
		if f.sent.Load()-f.confirmed.Load() >= rawWindow {
			select {
			case <-f.opened:
			case <-f.stop:
				return false
			}
		}
		f.waiting.Store(false)
	}
	return true
}

func (f *flow) emit(number uint64) error {
	slot := number % uint64(len(f.messages))
	stamp{f.run, number, now()}.write(f.payloads[slot])
	f.sent.Store(number)
	return f.producer.Send(f.messages[slot])
}

func (f *flow) confirm(confirms stream.ChannelPublishConfirm) {
	for list := range confirms {
		at := now()
		for _, c := range list {
			if !c.IsConfirmed() {
				f.refused++
				continue
			}
			var s stamp
			if f.load.Rate > 0 && f.measure.Load() && s.read(c.GetMessage().GetData()[0]) == nil {
				f.receipt = append(f.receipt, time.Duration(at-s.sentAt))
			}
		}
		confirmed := f.confirmed.Add(uint64(len(list)))
		if f.waiting.Load() && f.sent.Load()-confirmed <= rawWindow*3/4 {
			signal(f.opened)
		}
		signal(f.changed)
	}
}

func (f *flow) take(_ stream.ConsumerContext, m *amqp.Message) {
	at := now()
	var s stamp
	if s.read(m.GetData()) != nil || s.run != f.run {
		return
	}
	if f.load.Rate > 0 && f.measure.Load() {
		f.oneWay = append(f.oneWay, time.Duration(at-s.sentAt))
	}
	f.sequence.see(s.number)
	f.delivered.Add(1)
	select {
	case <-f.stop:
		signal(f.changed)
	default:
	}
}

// drain waits for what is on its way; what is missing then shows in the
// faults.
func (f *flow) drain() {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for f.delivered.Load() < f.sent.Load() || f.confirmed.Load() < f.sent.Load() {
		select {
		case <-f.changed:
		case <-timeout.C:
			return
		}
	}
}
