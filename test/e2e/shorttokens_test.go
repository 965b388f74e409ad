package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Tokens of a few seconds, each replaced in place after its warning while a user
// of the other gateway sends: nothing is lost. A token of another identity is
// refused, and the session goes on. The last token is not replaced: the stream
// ends, not before it is over and at most 5 s after.
func testShortTokens(t *testing.T, d *two) {
	const life = 6 * time.Second
	ws := workspace(t)
	to := agent(ws, "i", "s")
	token := func(impl string) (token string, ends time.Time) {
		f, now := agentClaims(ws), time.Now()
		ends = time.Unix(now.Add(life).Unix(), 0)
		f.claims["impl"], f.claims["iat"], f.claims["exp"] = impl, now.Unix(), ends.Unix()
		return f.sign(), ends
	}
	first, ends := token("i")
	p := connect(t, d.a, to, client(10_000), credentials(map[string]string{"bearer_token": first}))
	sender := connect(t, d.b, user(ws, "w", ws))

	stop, sent := make(chan struct{}), make(chan int)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				sent <- n
				return
			case <-tick.C:
			}
			if err := sender.store(to.name, fmt.Sprint(n)); err != nil {
				t.Error(err)
				sent <- n
				return
			}
		}
	}()
	renew := func(token string) {
		t.Helper()
		check(t, p.stream.Send(&up{Payload: &aetherv1.UpstreamMessage_Reauthenticate{
			Reauthenticate: &aetherv1.Reauthenticate{Credentials: map[string]string{"bearer_token": token}},
		}}))
	}
	for range 3 {
		warning, err := p.await(func(m *down) bool { return m.GetCredentialExpiring() != nil })
		check(t, err)
		if at := warning.GetCredentialExpiring().GetExpiresAtMs(); at != ends.UnixMilli() {
			t.Errorf("warned of %d, the token ends at %d", at, ends.UnixMilli())
		}
		if left := time.Until(ends); left > life/4 {
			t.Errorf("warned with %v of %v left", left, life)
		}
		another, _ := token("other")
		renew(another)
		p.errorOf("ERR_PERMISSION_DENIED")
		var next string
		next, ends = token("i")
		renew(next)
		answer, err := p.await(func(m *down) bool { return m.GetReauthenticated() != nil })
		check(t, err)
		if at := answer.GetReauthenticated().GetExpiresAtMs(); at != ends.UnixMilli() {
			t.Errorf("goes on until %d, want %d", at, ends.UnixMilli())
		}
	}
	close(stop)
	n := <-sent
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint(i))
	}
	wantTexts(t, p.reads(n), want)

	wantStatus(t, "the end of the last token", p.end(), codes.Unauthenticated)
	if early := time.Until(ends); early > 0 {
		t.Errorf("the session ended %v before its token", early)
	}
	within(t, 5*time.Second+atOnce, ends, "the end of a session without a new token")
}

// An operator makes a key at one gateway, which lets an agent in at the other at
// once, and revokes it: the agent is told and put out within 2 s.
func testKeyRevoked(t *testing.T, d *two) {
	ws := workspace(t)
	token, err := createToken("--kind", "operator")
	check(t, err)
	operate := func(g *gateway, args ...string) string {
		t.Helper()
		out, stderr, code, err := command([]string{"AETHER_ADDR=" + g.grpc, "AETHER_TOKEN=" + token}, args...)
		if err != nil || code != 0 {
			t.Fatalf("gateway %v: exit %d, %v\n%s", args, code, err, stderr)
		}
		return strings.TrimSpace(out)
	}
	key := operate(d.a, "key", "create", "--name", ws, "--kind", "agent", "--workspace", ws, "--impl", "i", "--spec", "*")
	shown := credentials(map[string]string{"x-api-key": key})
	p := connect(t, d.b, agent(ws, "i", "s"), shown)
	operate(d.a, "key", "revoke", ws)
	revoked := time.Now()
	signal, err := p.await(func(m *down) bool { return m.GetSignal() != nil })
	check(t, err)
	within(t, 2*time.Second+atOnce, revoked, "the end of a revoked session")
	if s := signal.GetSignal(); s.GetType() != aetherv1.Signal_SIGNAL_TYPE_FORCE_DISCONNECT || s.GetCode() != "REVOKED" {
		t.Errorf("told %v", s)
	}
	wantStatus(t, "a revoked session", p.end(), codes.Unauthenticated)
	for _, g := range []*gateway{d.a, d.b} {
		_, err := dial(t, g, agent(ws, "i", "s"), shown)
		wantStatus(t, "a revoked key", statusOf(err), codes.Unauthenticated)
	}
}
