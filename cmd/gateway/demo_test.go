package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/demo"
)

// playDemo plays the demo against a gateway. tamper, if not nil, stands between
// the demo and the gateway: it may change what is sent, and say of what comes
// that it is to be kept back.
func playDemo(t *testing.T, g *process, dir string, tamper *tamperer) ([]demo.Event, error) {
	t.Helper()
	keys, err := auth.LoadKeyFiles(filepath.Join(dir, devKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	mint := func(c auth.Claims) (string, error) {
		c.ExpiresAt = time.Now().Add(time.Hour)
		return auth.Mint(keys.First(), c)
	}
	o := demo.Options{
		Addr: g.grpc, Out: io.Discard, Patience: 5 * time.Second,
		AgentToken: func(w, i, s string) (string, error) {
			return mint(auth.Claims{Kind: auth.KindAgent, Workspaces: []string{w}, Impl: i, Spec: s})
		},
		UserToken: func(u, w string) (string, error) {
			return mint(auth.Claims{Kind: auth.KindUser, Workspaces: []string{w}, User: u})
		},
	}
	if tamper != nil {
		o.DialOptions = []grpc.DialOption{grpc.WithStreamInterceptor(tamper.intercept)}
	}
	return demo.Run(t.Context(), o)
}

type tamperer struct {
	send func(*aetherv1.SendMessage)
	keep func(*aetherv1.IncomingMessage) bool
}

func (tp *tamperer) intercept(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	st, err := next(ctx, desc, cc, method, opts...)
	return &tampered{st, tp}, err
}

type tampered struct {
	grpc.ClientStream
	tp *tamperer
}

func (s *tampered) SendMsg(m any) error {
	if up, ok := m.(*aetherv1.UpstreamMessage); ok && up.GetSend() != nil && s.tp.send != nil {
		s.tp.send(up.GetSend())
	}
	return s.ClientStream.SendMsg(m)
}

func (s *tampered) RecvMsg(m any) error {
	for {
		err := s.ClientStream.RecvMsg(m)
		down, ok := m.(*aetherv1.DownstreamMessage)
		if err != nil || !ok || down.GetMsg() == nil || s.tp.keep == nil || !s.tp.keep(down.GetMsg()) {
			return err
		}
	}
}

// told is what was observed, without what differs from run to run.
func told(events []demo.Event) []string {
	var lines []string
	for _, e := range events {
		if e.Kind == demo.Good && strings.HasPrefix(e.Text, "answered after ") {
			e.Text = "answered"
		}
		line := string(e.Kind)
		for _, part := range []string{e.Who, e.From, e.To, e.Text} {
			if part != "" {
				line += " | " + part
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func TestDemo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := launchDev(t, dir)
	first, err := playDemo(t, g, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"scene | Is anything left from an earlier run?",
		"connected | ag::demo::archivist::1",
		"good | nothing waited for ag::demo::archivist::1",
		"left | ag::demo::archivist::1",
		"scene | An agent connects",
		"connected | ag::demo::greeter::1",
		"scene | A user writes to it and gets an answer",
		"connected | us::alice::demo",
		"stored | us::alice::demo | ag::demo::greeter::1 | Good morning!",
		"received | ag::demo::greeter::1 | us::alice::demo | Good morning!",
		"stored | ag::demo::greeter::1 | us::alice::demo | Good morning, us::alice::demo!",
		"received | us::alice::demo | ag::demo::greeter::1 | Good morning, us::alice::demo!",
		"good | answered",
		"scene | The agent goes away, and messages wait for it",
		"left | ag::demo::greeter::1",
		"stored | us::alice::demo | ag::demo::greeter::1 | First, the news.",
		"stored | us::alice::demo | ag::demo::greeter::1 | Second, the weather.",
		"stored | us::alice::demo | ag::demo::greeter::1 | Third, goodbye.",
		"good | 3 messages stored while ag::demo::greeter::1 was away",
		"scene | It comes back and gets them in order",
		"connected | ag::demo::greeter::1",
		"waited | ag::demo::greeter::1 | us::alice::demo | First, the news.",
		"waited | ag::demo::greeter::1 | us::alice::demo | Second, the weather.",
		"waited | ag::demo::greeter::1 | us::alice::demo | Third, goodbye.",
		"good | all 3 arrived once, in the order in which they were sent",
		"scene | A send that is not allowed is refused",
		"refused | us::alice::demo | event::demo | ERR_PERMISSION_DENIED: users may not send to event addresses (event)",
		"stored | us::alice::demo | ag::demo::greeter::1 | Still here.",
		"received | ag::demo::greeter::1 | us::alice::demo | Still here.",
		"good | only that message was refused: the connection of us::alice::demo goes on",
		"scene | Messages stay for somebody who is not there",
		"stored | us::alice::demo | ag::demo::archivist::1 | Please keep this.",
		"stored | us::alice::demo | ag::demo::archivist::1 | And this.",
		"good | 2 messages stored for ag::demo::archivist::1, who is not connected; the next run on this data looks for them",
		"left | ag::demo::greeter::1",
		"left | us::alice::demo",
	}
	if diff := cmp.Diff(want, told(first)); diff != "" {
		t.Error(diff)
	}

	// Another run, on another gateway, finds what the first one left.
	g.stop(t)
	g = launchDev(t, dir, "--demo")
	g.stderr.wait(t, `ag::demo::archivist::1 got "Please keep this." from us::alice::demo, which had waited`)
	g.stderr.wait(t, `ag::demo::archivist::1 got "And this." from us::alice::demo, which had waited`)
	g.stderr.wait(t, "✓ 2 messages had waited for ag::demo::archivist::1")
	g.stderr.wait(t, "<-c.Done()")
	if strings.Contains(g.stderr.String(), "✗") {
		t.Errorf("the second run:\n%s", g.stderr)
	}
}

// The demo tells what it sees: when the gateway behaves differently, it says
// something else.
func TestDemoTellsWhatHappens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := launchDev(t, dir)
	tests := []struct {
		name   string
		tamper tamperer
		want   string
		not    string
	}{
		{
			name: "a rule lets the forbidden send pass",
			tamper: tamperer{send: func(m *aetherv1.SendMessage) {
				if m.GetTargetTopic() == demo.Forbidden {
					m.TargetTopic, m.MessageType = "uw::alice::demo", aetherv1.MessageType_MESSAGE_TYPE_CHAT
				}
			}},
			want: "bad | the gateway let it pass",
			not:  "refused | ",
		},
		{
			name: "it is refused for another reason",
			tamper: tamperer{send: func(m *aetherv1.SendMessage) {
				if m.GetTargetTopic() == demo.Forbidden {
					m.TargetTopic = "nowhere"
				}
			}},
			want: "bad | it was refused, but not for want of permission",
		},
		{
			name:   "a message is lost on the way",
			tamper: tamperer{keep: func(m *aetherv1.IncomingMessage) bool { return string(m.GetPayload()) == "Second, the weather." }},
			want:   "bad | 3 were sent and 2 arrived",
			not:    "good | all 3",
		},
		{
			name: "messages change places",
			tamper: tamperer{send: func(m *aetherv1.SendMessage) {
				switch string(m.GetPayload()) {
				case "First, the news.":
					m.Payload = []byte("Second, the weather.")
				case "Second, the weather.":
					m.Payload = []byte("First, the news.")
				}
			}},
			want: "bad | all arrived, but not in the order in which they were sent",
			not:  "good | all 3",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { // one after the other: they share the cast
			events, err := playDemo(t, g, dir, &tt.tamper)
			if err != nil {
				t.Fatal(err)
			}
			lines := told(events)
			if !slices.Contains(lines, tt.want) {
				t.Errorf("missing %q in\n%s", tt.want, strings.Join(lines, "\n"))
			}
			if tt.not != "" && slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, tt.not) }) {
				t.Errorf("%q was told:\n%s", tt.not, strings.Join(lines, "\n"))
			}
		})
	}
	t.Run("nobody gets an answer", func(t *testing.T) {
		events, err := playDemo(t, g, dir, &tamperer{keep: func(m *aetherv1.IncomingMessage) bool {
			return strings.HasPrefix(string(m.GetPayload()), "Good morning, ")
		}})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if last := events[len(events)-1]; last.Kind != demo.Bad || !strings.Contains(last.Text, "nothing came for us::alice::demo") {
			t.Errorf("the last words were %q", last.Line())
		}
	})
}
