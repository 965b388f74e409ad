package testservices

import (
	"testing"
	"time"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/amqp"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"
)

// publish stores one message and waits for its confirm.
func publish(t *testing.T, b *Broker, name string) {
	t.Helper()
	env, err := stream.NewEnvironment(stream.NewEnvironmentOptions().SetUri(b.URL()))
	if err != nil {
		t.Fatal("connect: ", err)
	}
	defer env.Close()
	exists, err := env.StreamExists(name)
	if err != nil {
		t.Fatal("exists: ", err)
	}
	if !exists {
		if err := env.DeclareStream(name, stream.NewStreamOptions()); err != nil {
			t.Fatal("declare: ", err)
		}
	}
	p, err := env.NewProducer(name, stream.NewProducerOptions())
	if err != nil {
		t.Fatal("producer: ", err)
	}
	defer p.Close()
	confirms := p.NotifyPublishConfirmation()
	if err := p.Send(amqp.NewMessage([]byte("hello"))); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-confirms:
		if !got[0].IsConfirmed() {
			t.Fatal("not confirmed")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("no confirm")
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
	publish(t, b, "kept")

	b.Stop()
	if got := state(b.PID()); got != 'T' {
		t.Errorf("state %c after Stop, want T", got)
	}
	b.Cont()
	publish(t, b, "kept")

	b.Stop() // the end of a stopped node must not hang
}
