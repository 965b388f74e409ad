package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// A user lets an agent act for it, the agent passes that on, and the receiver
// sees for whom a message was sent; when it is taken back, all is refused and all
// are told.
func TestActingForAnother(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	agent := func(spec string, onNotice func(client.Notice)) *client.Client {
		return connect(t, client.Options{Addr: g.Addr, Token: g.AgentToken("w", "echo"), Identity: client.Agent("w", "echo", spec), OnNotice: onNotice})
	}
	told := make(chan client.GrantRevoked, 10)
	user := connect(t, client.Options{Addr: g.Addr, Token: g.UserToken("u", "w"), Identity: client.User("u", "1")})
	first, receiver := agent("1", nil), agent("3", nil)
	second := agent("2", func(n client.Notice) {
		if r, ok := n.(client.GrantRevoked); ok {
			told <- r
		}
	})
	grant, err := user.IssueGrant(ctx, first.Address(), client.GrantTerms{
		Addresses: []string{"ag::w::*"}, Operations: []string{"send"}, Hops: 1, Expires: time.Now().Add(time.Minute), RenewableUntil: time.Now().Add(time.Hour),
		Reason: "for the test", Metadata: map[string]string{"k": "v"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if grant.Subject != (client.Principal{Type: "user", ID: "u"}) || grant.Delegate.ID != first.Address() || grant.Hops != 1 || grant.Metadata["k"] != "v" || grant.Addresses[0] != "ag::w::*" {
		t.Errorf("issued %+v", grant)
	}
	derived, err := first.DeriveGrant(ctx, grant.ID, second.Address(), client.GrantTerms{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Send(ctx, receiver.Address(), []byte("for u"), client.WithGrant(derived.ID)); err != nil {
		t.Fatal(err)
	}
	if m := receive(t, receiver); m.OnBehalfOf != grant.Subject || m.Source != second.Address() {
		t.Errorf("received %+v", m)
	}
	until := time.Now().Add(30 * time.Minute)
	if renewed, err := user.RenewGrant(ctx, grant.ID, until); err != nil || renewed.Expires.Unix() != until.Unix() {
		t.Errorf("renewed %+v, %v", renewed, err)
	}
	given, err := user.GrantsGiven(ctx)
	if err != nil || len(given) != 2 {
		t.Errorf("given %v, %v", given, err)
	}
	held, err := second.GrantsHeld(ctx)
	if err != nil || len(held) != 1 || held[0].ID != derived.ID || held[0].RootID != grant.ID {
		t.Errorf("held %v, %v", held, err)
	}
	if revoked, err := user.RevokeGrant(ctx, grant.ID); err != nil || revoked.RevokedAt.IsZero() {
		t.Errorf("revoked %+v, %v", revoked, err)
	}
	select {
	case r := <-told:
		if r.ID != derived.ID || r.RootID != grant.ID {
			t.Errorf("told %+v", r)
		}
	case <-ctx.Done():
		t.Error("nobody is told")
	}
	_, err = second.Send(ctx, receiver.Address(), []byte("late"), client.WithGrant(derived.ID))
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != client.CodeGrantInvalid {
		t.Errorf("under a revoked grant: %v", err)
	}
	_, err = receiver.GetGrant(ctx, grant.ID)
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != client.CodeNotFound {
		t.Errorf("somebody else's grant: %v", err)
	}
}
