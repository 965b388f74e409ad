package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/aether-gateway/gateway/client"
)

// Options say where the gateway is and how to get credentials for it.
type Options struct {
	// Addr is the gateway's gRPC address.
	Addr string
	// AgentToken and UserToken make credentials.
	AgentToken func(workspace, impl, spec string) (string, error)
	UserToken  func(user, workspace string) (string, error)
	// Out is told what happens, line by line.
	Out io.Writer
	// Patience bounds each wait; default 10 s.
	Patience time.Duration
	// DialOptions are added to those of the SDK.
	DialOptions []grpc.DialOption
}

// stage is where the scenes play. It is used by one goroutine.
type stage struct {
	o      Options
	events []Event
	actors []*actor // who is connected
	user   *actor
	agent  *actor
	unread []string // what was sent to the agent while it was away
}

// actor is somebody who is connected.
type actor struct {
	c    *client.Client
	name string
}

func (s *stage) tell(e Event) {
	s.events = append(s.events, e)
	fmt.Fprintln(s.o.Out, e.Line())
}

func (s *stage) good(format string, args ...any) {
	s.tell(Event{Kind: Good, Text: fmt.Sprintf(format, args...)})
}

func (s *stage) bad(format string, args ...any) {
	s.tell(Event{Kind: Bad, Text: fmt.Sprintf(format, args...)})
}

// enter connects somebody and returns what had been waiting for them, which is
// acknowledged.
//
// That nothing more waits is known when a message to oneself, sent after
// connecting, has come back: what was stored before it is delivered before it.
func (s *stage) enter(ctx context.Context, id client.Identity, workspace, token string) (*actor, []*client.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Patience)
	defer cancel()
	c, err := client.Connect(ctx, client.Options{
		Addr: s.o.Addr, Identity: id, Workspace: workspace, Token: token, DialOptions: s.o.DialOptions, Name: "gateway-demo",
	})
	if err != nil {
		return nil, nil, fmt.Errorf("%s could not connect: %w", id, err)
	}
	a := &actor{c: c, name: c.Address()}
	s.actors = append(s.actors, a)
	s.tell(Event{Kind: Connected, Who: a.name})
	receipt, err := c.Send(ctx, a.name, []byte("is there mail?"), client.WithType(client.Control))
	if err != nil {
		return nil, nil, fmt.Errorf("%s could not look for mail: %w", a.name, err)
	}
	var waiting []*client.Message
	for {
		m, err := c.Receive(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("%s was still waiting for mail: %w", a.name, err)
		}
		m.Ack()
		if m.Source == a.name && m.ID == receipt.MessageID {
			return a, waiting, nil
		}
		if m.Source == a.name && m.Type == client.Control {
			continue // an earlier look that was interrupted
		}
		waiting = append(waiting, m)
		position, _ := m.Position()
		s.tell(Event{Kind: Waited, Who: a.name, From: m.Source, Text: string(m.Payload), Position: position, RedeliveryFlag: m.Redelivered})
	}
}

// leave disconnects somebody.
func (s *stage) leave(ctx context.Context, a *actor) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Patience)
	defer cancel()
	if err := a.c.Close(ctx); err != nil {
		return fmt.Errorf("%s could not leave: %w", a.name, err)
	}
	for i := range s.actors {
		if s.actors[i] == a {
			s.actors = append(s.actors[:i], s.actors[i+1:]...)
			break
		}
	}
	s.tell(Event{Kind: Left, Who: a.name})
	return nil
}

// send sends a text and tells what became of it. refused is the gateway's
// refusal, err any other failure.
func (s *stage) send(ctx context.Context, a *actor, to, text string) (refused *client.Error, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Patience)
	defer cancel()
	begin := time.Now()
	kind := client.Chat
	if to == Forbidden {
		kind = client.Event // the right type, so that only the right is missing
	}
	receipt, err := a.c.Send(ctx, to, []byte(text), client.WithType(kind))
	var e *client.Error
	switch {
	case errors.As(err, &e) && !e.Retryable && ctx.Err() == nil:
		s.tell(Event{Kind: Refused, Who: a.name, To: to, Text: string(e.Code) + ": " + e.Message})
		return e, nil
	case err != nil:
		return nil, fmt.Errorf("%s could not send to %s: %w", a.name, to, err)
	case !receipt.Confirmed:
		return nil, fmt.Errorf("the gateway gave %s no receipt", a.name)
	}
	s.tell(Event{Kind: Stored, Who: a.name, To: to, Text: text, Took: took(begin)})
	return nil, nil
}

// receive waits for the next message and acknowledges it.
func (s *stage) receive(ctx context.Context, a *actor) (*client.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Patience)
	defer cancel()
	m, err := a.c.Receive(ctx)
	if err != nil {
		return nil, fmt.Errorf("nothing came for %s: %w", a.name, err)
	}
	m.Ack()
	position, _ := m.Position()
	s.tell(Event{Kind: Received, Who: a.name, From: m.Source, Text: string(m.Payload), Position: position, RedeliveryFlag: m.Redelivered})
	return m, nil
}

// clear disconnects everybody who is left.
func (s *stage) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, a := range s.actors {
		_ = a.c.Close(ctx)
	}
}

func took(begin time.Time) string {
	return fmt.Sprintf("%.1f ms", float64(time.Since(begin).Microseconds())/1000)
}
