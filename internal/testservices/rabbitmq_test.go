package testservices

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/amqp"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"
)

// publish stores one message and waits for its confirm. A node that was just
// started has the leader of one stream before that of another, so it tries again
// for a while.
func publish(t *testing.T, b *Broker, name string) {
	t.Helper()
	if err := poll(20*time.Second, nil, func() error { return tryPublish(b, name) }); err != nil {
		t.Fatal(err)
	}
}

func tryPublish(b *Broker, name string) error {
	env, err := stream.NewEnvironment(stream.NewEnvironmentOptions().SetUri(b.URL()))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer env.Close()
	exists, err := env.StreamExists(name)
	if err != nil {
		return fmt.Errorf("look for the stream: %w", err)
	}
	if !exists {
		if err := env.DeclareStream(name, stream.NewStreamOptions()); err != nil {
			return fmt.Errorf("declare: %w", err)
		}
	}
	p, err := env.NewProducer(name, stream.NewProducerOptions())
	if err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	defer p.Close()
	confirms := p.NotifyPublishConfirmation()
	if err := p.Send(amqp.NewMessage([]byte("hello"))); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	select {
	case got := <-confirms:
		if !got[0].IsConfirmed() {
			return errors.New("not confirmed")
		}
		return nil
	case <-time.After(10 * time.Second):
		return errors.New("no confirm")
	}
}

func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	began := time.Now()
	b := RabbitMQ(t)
	t.Logf("up after %v", time.Since(began))
	if RabbitMQ(t) != b {
		t.Error("a second call started a second node")
	}
	publish(t, b, t.Name())
}

func TestBrokerFaults(t *testing.T) {
	t.Parallel()
	b := NewBroker(t)
	publish(t, b, "kept")
	pid := b.PID()

	b.Kill()
	if dial(b.StreamPort()) == nil {
		t.Error("the stream port is open after Kill")
	}
	began := time.Now()
	b.Start()
	t.Logf("up again after %v", time.Since(began))
	if b.PID() == pid {
		t.Error("the same process id after Start")
	}
	b.AwaitStreams("kept")
	if err := tryPublish(b, "kept"); err != nil {
		t.Errorf("a stream that is served takes nothing: %v", err)
	}

	b.Stop()
	if got := state(b.PID()); got != 'T' {
		t.Errorf("state %c after Stop, want T", got)
	}
	b.Cont()
	publish(t, b, "kept")

	b.Stop() // the end of a stopped node must not hang
}
