package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

func TestHandshake(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		o.MaxUnacked, o.Echo, o.Name = 17, true, "test/1"
		c, p := g.connect(o, g.welcome)
		init := p.init
		if a := init.GetAgent(); a.GetWorkspace() != "demo" || a.GetImplementation() != "echo" || a.GetSpecifier() != "1" {
			t.Errorf("identity: %v", init)
		}
		if d := init.GetDelivery(); d.GetAckMode() != aetherv1.AckMode_ACK_MODE_CLIENT || d.GetMaxUnacked() != 17 || !d.GetEcho() {
			t.Errorf("delivery options: %v", d)
		}
		if got := init.GetCredentials()["authorization"]; got != "Bearer secret-token" {
			t.Errorf("credential: %q", got)
		}
		if init.GetResumeSessionId() != "" || init.GetClientSdk() == "" || init.GetClientVersion() != "test/1" {
			t.Errorf("init: %v", init)
		}
		s := c.Session()
		if s.ID != "session-" || !s.Extended || s.MaxPayload != 1_000_000 || s.Heartbeat != 15*time.Second || s.Epoch != 1 {
			t.Errorf("session: %+v", s)
		}
		if c.Address() != "ag::demo::echo::1" {
			t.Errorf("address: %s", c.Address())
		}
		g.close(c, p)
		if c.Err() != nil {
			t.Errorf("Err after Close: %v", c.Err())
		}
	})
}

func TestConfigComesAfterTheHandshake(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, p := g.connect(g.options(), g.welcome)
		got := make(chan Config, 1)
		go func() {
			config, err := c.Config(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- config
		}()
		p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Config{Config: &aetherv1.ConfigSnapshot{
			WorkspaceExclusiveKv: map[string][]byte{"k": []byte("v")}, TaskContext: map[string]string{"task_id": "t"},
			GlobalKv: map[string][]byte{"g": []byte("w")}, Truncated: true, //nolint:staticcheck // gateways may fill either pair
		}}})
		config := expect(t, got)
		if string(config.Workspace["k"]) != "v" || string(config.Global["g"]) != "w" || config.Task["task_id"] != "t" || !config.Truncated {
			t.Errorf("config: %+v", config)
		}
		g.close(c, p)
	})
}

func TestAssignedAddressOfATask(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		o.Identity = Task("demo", "worker")
		c, p := g.connect(o, func() *peer {
			p := g.accept()
			if p.init.GetTask().GetUniqueSpecifier() != "" {
				t.Errorf("init: %v", p.init)
			}
			p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_ConnectionAck{ConnectionAck: &aetherv1.ConnectionAck{
				SessionId: "s", AssignedId: "42", MaxPayloadBytes: 1000,
			}}})
			return p
		})
		if got := c.Address(); got != "ta::demo::worker::42" {
			t.Errorf("address: %s", got)
		}
		g.close(c, p)
	})
}

// refusedConnect connects while the gateway ends each stream with err.
func refusedConnect(t *testing.T, g *gateway, o Options, err error) (tries int, failure error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		c, err := Connect(t.Context(), o)
		if c != nil {
			t.Error("connected")
		}
		done <- err
	}()
	for {
		select {
		case p := <-g.streams:
			tries++
			p.finish(err)
		case err := <-done:
			return tries, err
		}
	}
}

func TestFirstConnectTerminal(t *testing.T) {
	for code, want := range map[codes.Code]Code{
		codes.Unauthenticated:  CodeUnauthenticated,
		codes.PermissionDenied: CodePermissionDenied,
		codes.InvalidArgument:  CodeInvalidArgument,
		codes.AlreadyExists:    CodeDuplicateIdentity,
		codes.Unimplemented:    CodeConnection,
	} {
		t.Run(code.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, g *gateway) {
				tries, err := refusedConnect(t, g, g.options(), status.Error(code, "the reason"))
				if tries != 1 {
					t.Errorf("%d tries", tries)
				}
				if CodeOf(err) != want || !strings.Contains(err.Error(), "the reason") {
					t.Errorf("error: %v", err)
				}
				if status.Code(errors.Unwrap(err)) != code {
					t.Errorf("does not wrap the status: %v", err)
				}
				if NotStored(err) {
					t.Errorf("is of a send: %v", err)
				}
				if strings.Contains(err.Error(), "secret-token") {
					t.Errorf("shows the credential: %v", err)
				}
			})
		})
	}
}

func TestFirstConnectRetriesWhatMayPass(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		began := time.Now()
		tries, err := refusedConnect(t, g, g.options(), status.Error(codes.Unavailable, "draining"))
		if tries < 3 || CodeOf(err) != CodeUnavailable || !strings.Contains(err.Error(), "draining") {
			t.Errorf("%d tries, %v", tries, err)
		}
		if took := time.Since(began); took != DefaultConnectTimeout {
			t.Errorf("gave up after %s", took)
		}
	})
}

// Nothing that listens is not a gateway that says no.
func TestNothingListens(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		g.refuse(true)
		_, err := Connect(t.Context(), g.options())
		e, _ := errors.AsType[*Error](err)
		if e == nil || e.Code != CodeConnection || !e.Retryable || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("error: %v", err)
		}
	})
}

func TestWaitForIdentity(t *testing.T) {
	held := status.Error(codes.AlreadyExists, "held")
	t.Run("until it is free", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *gateway) {
			o := g.options()
			o.WaitForIdentity = time.Minute
			c, p := g.connect(o, func() *peer {
				for began := time.Now(); time.Since(began) < 30*time.Second; {
					g.accept().finish(held)
				}
				return g.welcome()
			})
			g.close(c, p)
		})
	})
	t.Run("not for ever", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *gateway) {
			o := g.options()
			o.WaitForIdentity = time.Minute
			began := time.Now()
			tries, err := refusedConnect(t, g, o, held)
			if tries < 5 || !IsDuplicateIdentity(err) {
				t.Errorf("%d tries, %v", tries, err)
			}
			if took := time.Since(began); took != time.Minute {
				t.Errorf("gave up after %s", took)
			}
		})
	})
}

func TestFirstConnectHonoursTheHint(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		s, err := status.New(codes.ResourceExhausted, "slow down").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(4 * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		tries, err := refusedConnect(t, g, g.options(), s.Err())
		if tries != 3 { // at 0, 4 and 8 s of 10
			t.Errorf("%d tries", tries)
		}
		if CodeOf(err) != CodeRateLimited {
			t.Errorf("error: %v", err)
		}
	})
}

func TestFirstConnectTimesOut(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		_, err := Connect(ctx, g.options()) // nobody answers
		if CodeOf(err) != CodeConnection || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error: %v", err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

func TestFirstFrameMustBeConnectionAck(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		done := make(chan error, 1)
		go func() {
			_, err := Connect(t.Context(), g.options())
			done <- err
		}()
		g.accept().deliver(1, "m", "x")
		if err := expect(t, done); CodeOf(err) != CodeConnection || !strings.Contains(err.Error(), "ConnectionAck") {
			t.Errorf("error: %v", err)
		}
	})
}

func TestTokenSource(t *testing.T) {
	t.Run("fails", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *gateway) {
			o, cause := g.options(), errors.New("vault is sealed")
			o.Token = ""
			o.TokenSource = func(context.Context) (string, error) { return "", cause }
			if _, err := Connect(t.Context(), o); CodeOf(err) != CodeTokenSource || !errors.Is(err, cause) {
				t.Errorf("error: %v", err)
			}
		})
	})
	t.Run("is asked again, not for ever", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *gateway) {
			o, asked := g.options(), 0
			o.Token = ""
			o.TokenSource = func(context.Context) (string, error) { asked++; return "stale", nil }
			tries, err := refusedConnect(t, g, o, status.Error(codes.Unauthenticated, "expired"))
			if tries != maxUnauthenticated || asked != tries || !IsUnauthenticated(err) {
				t.Errorf("%d tries, asked %d times, %v", tries, asked, err)
			}
		})
	})
	t.Run("renews in place", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *gateway) {
			o, tokens := g.options(), []string{"second", "first"}
			o.Token = ""
			o.TokenSource = func(context.Context) (string, error) {
				tok := tokens[len(tokens)-1]
				tokens = tokens[:len(tokens)-1]
				return tok, nil
			}
			notices := make(chan Notice, 10)
			o.OnNotice = func(n Notice) { notices <- n }
			c, p := g.connect(o, g.welcome)
			if got := p.init.GetCredentials()["authorization"]; got != "Bearer first" {
				t.Errorf("credential: %q", got)
			}
			expect(t, notices) // Connected
			soon := time.Now().Add(time.Minute)
			p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_CredentialExpiring{
				CredentialExpiring: &aetherv1.CredentialExpiring{ExpiresAtMs: soon.UnixMilli()},
			}})
			if got := p.next().GetReauthenticate().GetCredentials()["authorization"]; got != "Bearer second" {
				t.Errorf("renewed with %q", got)
			}
			if n, ok := expect(t, notices).(CredentialExpiring); !ok || n.At.UnixMilli() != soon.UnixMilli() {
				t.Errorf("notice: %v", n)
			}
			later := soon.Add(time.Hour)
			p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Reauthenticated{
				Reauthenticated: &aetherv1.Reauthenticated{ExpiresAtMs: later.UnixMilli()},
			}})
			p.quiet()
			if got := c.Session().CredentialExpires; got.UnixMilli() != later.UnixMilli() {
				t.Errorf("expires %s, want %s", got, later)
			}
			g.close(c, p)
		})
	})
	t.Run("goes on until the gateway takes one", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *gateway) {
			// The same one again, one that is refused, none, and a good one.
			o, tokens, asked := g.options(), []string{"first", "first", "second", "", "third", "third"}, 0
			o.Token = ""
			o.TokenSource = func(context.Context) (string, error) {
				tok := tokens[asked]
				if asked++; tok == "" {
					return "", errors.New("vault is sealed")
				}
				return tok, nil
			}
			c, p := g.connect(o, g.welcome)
			soon := time.Now().Add(8 * time.Second)
			expiring := &aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_CredentialExpiring{
				CredentialExpiring: &aetherv1.CredentialExpiring{ExpiresAtMs: soon.UnixMilli()},
			}}
			p.send(expiring)
			p.send(expiring) // while one is under way
			shown := func() string { return p.next().GetReauthenticate().GetCredentials()["authorization"] }
			if got := shown(); got != "Bearer second" {
				t.Fatalf("renewed with %q", got)
			}
			p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Error{Error: &aetherv1.ErrorResponse{
				Code: "ERR_PERMISSION_DENIED", Details: map[string]string{"frame": "reauthenticate"},
			}}})
			if got := shown(); got != "Bearer third" {
				t.Fatalf("renewed with %q", got)
			}
			if !time.Now().Before(soon) {
				t.Errorf("a good one came too late, at %s", time.Now())
			}
			p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Reauthenticated{
				Reauthenticated: &aetherv1.Reauthenticated{ExpiresAtMs: soon.Add(time.Hour).UnixMilli()},
			}})
			p.quiet()
			if asked != 5 {
				t.Errorf("asked %d times", asked)
			}
			g.close(c, p)
		})
	})
}
