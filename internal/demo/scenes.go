package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aether-gateway/gateway/client"
)

// The cast.
const (
	Workspace = "demo"
	Greeter   = "ag::demo::greeter::1"
	Archivist = "ag::demo::archivist::1"
	Alice     = "us::alice::demo"
	// Forbidden is where no user may send.
	Forbidden = "event::demo"
)

// scene is one thing that is shown. Its error ends the demo.
type scene struct {
	title string
	play  func(context.Context, *stage) error
}

var scenes = []scene{
	{"Is anything left from an earlier run?", mailFromLastTime},
	{"An agent connects", agentConnects},
	{"A user writes to it and gets an answer", conversation},
	{"The agent goes away, and messages wait for it", agentGoesAway},
	{"It comes back and gets them in order", agentComesBack},
	{"A send that is not allowed is refused", forbiddenSend},
	{"Messages stay for somebody who is not there", mailForNextTime},
}

// Run plays all scenes and returns what was observed. The error says why it
// ended early; it was told as well.
func Run(ctx context.Context, o Options) ([]Event, error) {
	if o.Patience <= 0 {
		o.Patience = 10 * time.Second
	}
	s := &stage{o: o}
	defer s.clear()
	for _, sc := range scenes {
		s.tell(Event{Kind: Scene, Text: sc.title})
		if err := sc.play(ctx, s); err != nil {
			if ctx.Err() != nil {
				return s.events, ctx.Err()
			}
			s.bad("%v", err)
			return s.events, err
		}
	}
	return s.events, nil
}

func (s *stage) enterAgent(ctx context.Context, impl string) (*actor, []*client.Message, error) {
	token, err := s.o.AgentToken(Workspace, impl, "1")
	if err != nil {
		return nil, nil, err
	}
	return s.enter(ctx, client.Agent(Workspace, impl, "1"), "", token)
}

func mailFromLastTime(ctx context.Context, s *stage) error {
	archivist, waiting, err := s.enterAgent(ctx, "archivist")
	if err != nil {
		return err
	}
	if len(waiting) == 0 {
		s.good("nothing waited for %s", archivist.name)
	} else {
		s.good("%s had waited for %s", count(len(waiting)), archivist.name)
	}
	return s.leave(ctx, archivist)
}

func agentConnects(ctx context.Context, s *stage) (err error) {
	s.agent, _, err = s.enterAgent(ctx, "greeter")
	return err
}

func conversation(ctx context.Context, s *stage) error {
	token, err := s.o.UserToken("alice", Workspace)
	if err != nil {
		return err
	}
	if s.user, _, err = s.enter(ctx, client.User("alice", "demo"), Workspace, token); err != nil {
		return err
	}
	begin := time.Now()
	if err := s.mustSend(ctx, s.user, s.agent.name, "Good morning!"); err != nil {
		return err
	}
	question, err := s.receive(ctx, s.agent)
	if err != nil {
		return err
	}
	if err := s.mustSend(ctx, s.agent, question.Source, "Good morning, "+question.Source+"!"); err != nil {
		return err
	}
	answer, err := s.receive(ctx, s.user)
	if err != nil {
		return err
	}
	if answer.Source != s.agent.name {
		s.bad("the answer came from %s", answer.Source)
		return nil
	}
	s.good("answered after %s", took(begin))
	return nil
}

// mustSend sends what is allowed.
func (s *stage) mustSend(ctx context.Context, a *actor, to, text string) error {
	refused, err := s.send(ctx, a, to, text)
	if refused != nil {
		return errors.New("this was expected to be allowed")
	}
	return err
}

func agentGoesAway(ctx context.Context, s *stage) error {
	if err := s.leave(ctx, s.agent); err != nil {
		return err
	}
	for _, text := range []string{"First, the news.", "Second, the weather.", "Third, goodbye."} {
		if err := s.mustSend(ctx, s.user, s.agent.name, text); err != nil {
			return err
		}
		s.unread = append(s.unread, text)
	}
	s.good("%s stored while %s was away", count(len(s.unread)), s.agent.name)
	return nil
}

func agentComesBack(ctx context.Context, s *stage) (err error) {
	var waiting []*client.Message
	if s.agent, waiting, err = s.enterAgent(ctx, "greeter"); err != nil {
		return err
	}
	var got []string
	for _, m := range waiting {
		got = append(got, string(m.Payload))
	}
	sorted := slices.Clone(got)
	slices.Sort(sorted)
	wanted := slices.Clone(s.unread)
	slices.Sort(wanted)
	switch {
	case slices.Equal(got, s.unread):
		s.good("all %d arrived once, in the order in which they were sent", len(got))
	case slices.Equal(sorted, wanted):
		s.bad("all arrived, but not in the order in which they were sent")
	default:
		s.bad("%d were sent and %d arrived", len(s.unread), len(got))
	}
	return nil
}

func forbiddenSend(ctx context.Context, s *stage) error {
	refused, err := s.send(ctx, s.user, Forbidden, "let me in")
	switch {
	case err != nil:
		return err
	case refused == nil:
		s.bad("the gateway let it pass")
		return nil
	case !client.IsPermission(refused):
		s.bad("it was refused, but not for want of permission")
		return nil
	}
	// The stream has to stay open: the same user goes on.
	if err := s.mustSend(ctx, s.user, s.agent.name, "Still here."); err != nil {
		return err
	}
	if _, err := s.receive(ctx, s.agent); err != nil {
		return err
	}
	s.good("only that message was refused: the connection of %s goes on", s.user.name)
	return nil
}

func mailForNextTime(ctx context.Context, s *stage) error {
	texts := []string{"Please keep this.", "And this."}
	for _, text := range texts {
		if err := s.mustSend(ctx, s.user, Archivist, text); err != nil {
			return err
		}
	}
	s.good("%s stored for %s, who is not connected; the next run on this data looks for them", count(len(texts)), Archivist)
	if err := s.leave(ctx, s.agent); err != nil {
		return err
	}
	return s.leave(ctx, s.user)
}

func count(n int) string {
	if n == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", n)
}
