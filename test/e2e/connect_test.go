package e2e

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// One identity has one session; the second claimant is told, and the first
// goes on.
func testDuplicateIdentity(t *testing.T, g *gateway) {
	ws := workspace(t)
	sender := connect(t, g, user(ws+"-sender", "w", ws))
	for _, id := range []identity{
		agent(ws, "i", "s"), uniqueTask(ws, "i", "s"), user(ws, "w", ws), engine(ws, ws), metricsBridge(ws),
		orchestrator(ws, "s", ws), service(ws, "s", ws), bridge(ws, "s"),
	} {
		first := connect(t, g, id)
		_, err := dial(t, g, id)
		s := statusOf(err)
		if s.Code() != codes.AlreadyExists || !strings.HasPrefix(s.Message(), "DuplicateIdentityError: identity (") {
			t.Errorf("a second %s: %v", id.name, err)
		}
		if !strings.Contains(s.Message(), id.name) {
			t.Errorf("%q does not name %s", s.Message(), id.name)
		}
		// A wrong session id takes nothing over.
		if _, err := dial(t, g, id, func(i *aetherv1.InitConnection) { i.ResumeSessionId = sender.ack.GetSessionId() }); statusOf(err).Code() != codes.AlreadyExists {
			t.Errorf("a second %s with another's session id: %v", id.name, err)
		}
		if strings.HasPrefix(id.name, "ag::") {
			sender.stored(id.name, "still here")
			if m := first.read(); string(m.GetPayload()) != "still here" {
				t.Errorf("the first got %v", m)
			}
		}
		first.leaves()
		connect(t, g, id).leaves()
	}
	// Two windows are two identities, and so are two tasks without a name.
	connect(t, g, user(ws, "1", ws))
	connect(t, g, user(ws, "2", ws))
	one, two := connect(t, g, task(ws, "i")), connect(t, g, task(ws, "i"))
	if one.name() == two.name() || one.ack.GetAssignedId() == "" || strings.Contains(one.ack.GetAssignedId(), "::") {
		t.Errorf("two tasks are %s and %s", one.name(), two.name())
	}
}

// Whoever has the session's id takes it over; the old stream is told, and
// nothing is lost or comes twice that was acknowledged.
func testResume(t *testing.T, g *gateway) {
	ws := workspace(t)
	to := agent(ws, "i", "s")
	sender := connect(t, g, user(ws, "w", ws))
	old := connect(t, g, to)
	sender.stored(to.name, numbered("m", 1, 10)...)
	for range 10 {
		old.read()
	}
	old.acks(4)
	old.synced()
	begun := time.Now()
	next := connect(t, g, to, func(i *aetherv1.InitConnection) { i.ResumeSessionId = old.ack.GetSessionId() })
	within(t, atOnce, begun, "taking over a session")
	if !next.ack.GetResumed() || next.ack.GetSessionId() == old.ack.GetSessionId() {
		t.Errorf("the acknowledgement is %v", next.ack)
	}
	signal, err := old.await(func(m *down) bool { return m.GetSignal() != nil })
	check(t, err)
	if s := signal.GetSignal(); s.GetType() != aetherv1.Signal_SIGNAL_TYPE_FORCE_DISCONNECT || s.GetCode() != "SUPERSEDED" {
		t.Errorf("the old stream got the signal %v", s)
	}
	wantStatus(t, "the old stream", old.end(), codes.Aborted)
	sender.stored(to.name, "last")
	wantTexts(t, next.until("last"), numbered("m", 5, 10))
}

// The first frames come in their order, and say what a client may rely on.
func testGreeting(t *testing.T, g *gateway) {
	ws := workspace(t)
	to := agent(ws, "i", "s")
	connect(t, g, user(ws, "w", ws)).stored(to.name, "waiting")
	p := connect(t, g, to)
	a := p.ack
	if a.GetSessionId() == "" || a.GetResumed() || a.GetAssignedId() != "" || a.GetBatch() {
		t.Errorf("the acknowledgement is %v", a)
	}
	if a.GetMaxPayloadBytes() != 1_000_000 || a.GetHeartbeatIntervalMs() != 1000 || a.GetServerVersion() == "" {
		t.Errorf("limits and version are %v", a)
	}
	left := time.Until(time.UnixMilli(a.GetCredentialExpiresAtMs()))
	if left < 23*time.Hour || left > 24*time.Hour {
		t.Errorf("the credential ends in %v, want a day", left)
	}
	second, err := p.recv()
	check(t, err)
	if second.GetConfig() == nil {
		t.Errorf("the second frame is %v, want the ConfigSnapshot", second)
	}
	if m := p.read(); string(m.GetPayload()) != "waiting" {
		t.Errorf("got %v", m)
	}
	// A task gets a snapshot too, a user none.
	for _, id := range []identity{uniqueTask(ws, "i", "s"), task(ws, "i")} {
		p := connect(t, g, id)
		if m, err := p.recv(); err != nil || m.GetConfig() == nil {
			t.Errorf("the second frame of %s is %v, %v", id.name, m, err)
		}
	}
	u := connect(t, g, user(ws, "w2", ws))
	u.stored("us::"+ws+"::w2", "to myself")
	u.read()
	for _, m := range u.kept {
		if m.GetConfig() != nil {
			t.Error("a user got a ConfigSnapshot")
		}
	}
	// Heartbeats are answered, and come by themselves.
	check(t, p.stream.Send(&up{Payload: &aetherv1.UpstreamMessage_Heartbeat{Heartbeat: &aetherv1.Heartbeat{SentAtMs: 1}}}))
	p.beats(3)
}

// refusal opens a stream by hand and returns the status with which it ends.
func refusal(t *testing.T, g *gateway, md []string, frames ...*up) *status.Status {
	t.Helper()
	w := open(t, g.grpc, md...)
	defer w.cut()
	for _, f := range frames {
		if w.stream.Send(f) != nil {
			break // it has ended; the status tells
		}
	}
	return w.end()
}

func initFrame(i *aetherv1.InitConnection) *up {
	return &up{Payload: &aetherv1.UpstreamMessage_Init{Init: i}}
}

func wantStatus(t *testing.T, what string, got *status.Status, want ...codes.Code) {
	t.Helper()
	for _, code := range want {
		if got.Code() == code && got.Message() != "" {
			return
		}
	}
	t.Errorf("%s: %v, want %v and a reason", what, got, want)
}

// Streams that do not begin with an init end with the right status.
func testBadBeginnings(t *testing.T, g *gateway) {
	ws := workspace(t)
	good, err := agent(ws, "i", "s").frame()
	check(t, err)
	silent := make(chan *status.Status, 1)
	begun := time.Now()
	w := open(t, g.grpc)
	go func() { silent <- w.end() }()

	send := &up{Payload: &aetherv1.UpstreamMessage_Send{Send: chat("ga::"+ws, "first")}}
	wantStatus(t, "a send first", refusal(t, g, nil, send), codes.InvalidArgument)
	wantStatus(t, "an empty frame first", refusal(t, g, nil, &up{}), codes.InvalidArgument)
	wantStatus(t, "an ack first", refusal(t, g, nil, &up{Payload: &aetherv1.UpstreamMessage_Ack{Ack: &aetherv1.DeliveryAck{UpTo: 1}}}), codes.InvalidArgument)
	wantStatus(t, "an init in a batch", refusal(t, g, nil, &up{Batch: []*up{initFrame(good)}}), codes.InvalidArgument)
	wantStatus(t, "a second init", refusal(t, g, nil, initFrame(good), initFrame(good)), codes.InvalidArgument)
	wantStatus(t, "no identity", refusal(t, g, nil, initFrame(&aetherv1.InitConnection{Credentials: good.GetCredentials()})), codes.InvalidArgument)
	if _, err := dial(t, g, agent(ws, "i", "s"), func(i *aetherv1.InitConnection) { i.Delivery.AckMode = 7 }); statusOf(err).Code() != codes.InvalidArgument {
		t.Errorf("an unknown ack_mode: %v", err)
	}
	for name, id := range map[string]identity{
		"empty specifier": agent(ws, "i", ""), "empty workspace": agent("", "i", "s"), "separator": agent(ws, "i", "a::b"),
		"wildcard": agent(ws, "i", "*"), "space": agent(ws, "i", "a b"), "control": agent(ws, "i", "a\x00b"), "long": agent(ws, "i", strings.Repeat("x", 129)),
		"reserved": agent("receiver0", "i", "s"), "empty window": user(ws, "", ws), "colon": service("a:", "s", ws), "empty instance": engine("", ws),
	} {
		init, err := agent(ws, "i", "s").frame()
		check(t, err)
		claim := id.init
		claim.Credentials, claim.Delivery = init.GetCredentials(), init.GetDelivery()
		wantStatus(t, name, refusal(t, g, nil, initFrame(claim)), codes.InvalidArgument, codes.PermissionDenied)
	}

	if s := <-silent; s.Code() != codes.DeadlineExceeded {
		t.Errorf("without init the stream ended with %v, want DEADLINE_EXCEEDED", s)
	}
	if took := time.Since(begun); took < 8*time.Second || took > 10*time.Second+atOnce {
		t.Errorf("without init the stream ended after %v, want about 10 s", took)
	}
}

// A credential that is missing, bad, or does not prove the claim is refused
// before anything else happens.
func testCredentials(t *testing.T, g *gateway) {
	ws := workspace(t)
	id := agent(ws, "i", "s")
	with := func(c map[string]string) *up {
		init, err := id.frame(credentials(c))
		check(t, err)
		return initFrame(init)
	}
	bearer := func(token string) map[string]string { return map[string]string{"authorization": "Bearer " + token} }
	forge := func(change func(*forged)) string {
		f := agentClaims(ws)
		change(&f)
		return f.sign()
	}
	good := forge(func(*forged) {})

	// Every place for a token works, the scheme is optional.
	for name, places := range map[string][2]map[string]string{
		"authorization": {bearer(good)}, "without scheme": {{"authorization": good}}, "lower case": {{"authorization": "bearer " + good}},
		"bearer_token": {{"bearer_token": good}}, "metadata": {{}, bearer(good)}, "the same twice": {bearer(good), bearer(good)},
	} {
		var md []string
		for k, v := range places[1] {
			md = append(md, k, v)
		}
		init, err := id.frame(credentials(places[0]))
		check(t, err)
		w := open(t, g.grpc, md...)
		if err := w.greet(init); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		check(t, w.leave())
	}

	const day = 24 * 60 * 60
	now := time.Now().Unix()
	publicKey := "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEevZzL1gdAFr88hb2OF/2NxApJCzG\nCEDdfSp6VQO30hyhRANCAAQ=\n-----END PUBLIC KEY-----\n"
	for name, token := range map[string]string{
		"expired":           forge(func(f *forged) { f.claims["exp"] = now - 60 }),
		"expired long ago":  forge(func(f *forged) { f.claims["exp"] = now - day }),
		"no expiry":         forge(func(f *forged) { delete(f.claims, "exp") }),
		"not yet valid":     forge(func(f *forged) { f.claims["nbf"] = now + 300 }),
		"wrong key":         forge(func(f *forged) { f.key = "another secret, which nobody told the gateway of" }),
		"public key":        forge(func(f *forged) { f.key = publicKey }),
		"empty key":         forge(func(f *forged) { f.key = "" }),
		"alg none":          forge(func(f *forged) { f.header["alg"] = "none" }),
		"alg None":          forge(func(f *forged) { f.header["alg"] = "None" }),
		"alg RS256":         forge(func(f *forged) { f.header["alg"] = "RS256" }),
		"alg HS512":         forge(func(f *forged) { f.header["alg"] = "HS512" }),
		"no alg":            forge(func(f *forged) { delete(f.header, "alg") }),
		"unknown kid":       forge(func(f *forged) { f.header["kid"] = "../../etc/passwd" }),
		"critical header":   forge(func(f *forged) { f.header["crit"] = []string{"x"} }),
		"other issuer":      forge(func(f *forged) { f.claims["iss"] = "another" }),
		"no issuer":         forge(func(f *forged) { delete(f.claims, "iss") }),
		"other audience":    forge(func(f *forged) { f.claims["aud"] = "another" }),
		"no audience":       forge(func(f *forged) { delete(f.claims, "aud") }),
		"unknown kind":      forge(func(f *forged) { f.claims["kind"] = "god" }),
		"no kind":           forge(func(f *forged) { delete(f.claims, "kind") }),
		"no signature":      good[:strings.LastIndex(good, ".")+1],
		"signature cut":     good[:len(good)-4],
		"not a token":       "hello",
		"two tokens in one": good + "." + good,
		"huge":              strings.Repeat("a", 20_000),
		"claims changed":    swapClaims(good, forge(func(f *forged) { f.claims["spec"] = "other" })),
	} {
		s := refusal(t, g, nil, with(bearer(token)))
		wantStatus(t, name, s, codes.Unauthenticated)
		if strings.Contains(s.Message(), token) && len(token) > 20 {
			t.Errorf("%s: the refusal repeats the token", name)
		}
	}
	wantStatus(t, "nothing", refusal(t, g, nil, with(map[string]string{})), codes.Unauthenticated)
	wantStatus(t, "empty", refusal(t, g, nil, with(bearer(""))), codes.Unauthenticated)
	wantStatus(t, "another scheme", refusal(t, g, nil, with(map[string]string{"authorization": "Basic dTpw"})), codes.Unauthenticated)
	for _, place := range []string{"token", "x-api-key", "api_key"} {
		wantStatus(t, place, refusal(t, g, nil, with(map[string]string{place: "abc"})), codes.Unauthenticated)
	}

	// Credentials that disagree: neither is chosen.
	different := forge(func(f *forged) { f.claims["jti"] = "2" })
	disagree := codes.InvalidArgument
	wantStatus(t, "metadata and init disagree", refusal(t, g, []string{"authorization", "Bearer " + different}, with(bearer(good))), disagree)
	wantStatus(t, "two in metadata", refusal(t, g, []string{"authorization", "Bearer " + different, "authorization", "Bearer " + good}, with(nil)), disagree)
	wantStatus(t, "two in init", refusal(t, g, nil, with(map[string]string{"authorization": good, "bearer_token": different})), disagree)
	wantStatus(t, "good in metadata, bad in init", refusal(t, g, []string{"authorization", "Bearer " + good}, with(bearer("bad"))), disagree)

	// A good token proves what it says and nothing more.
	for name, claim := range map[string]identity{
		"another workspace": agent(ws+"-2", "i", "s"), "another implementation": agent(ws, "j", "s"), "prefix of its workspace": agent(ws[:3], "i", "s"),
		"a unique task": uniqueTask(ws, "i", "s"), "a task": task(ws, "i"), "a user": user("i", "s", ws), "an engine": engine("i", ws), "a metrics bridge": metricsBridge("i"),
		"an orchestrator": orchestrator("i", "s", ws), "a service": service("i", "s", ws), "a bridge": bridge("i", "s"),
	} {
		claim.init.Credentials = bearer(good)
		wantStatus(t, name, refusal(t, g, nil, initFrame(claim.init)), codes.PermissionDenied)
	}
	exact := forge(func(f *forged) { f.claims["spec"] = "s1" })
	globbed := forge(func(f *forged) { f.claims["spec"] = "s-*" })
	for spec, token := range map[string]string{"s2": exact, "s1x": exact, "S1": exact, "s": globbed, "xs-1": globbed} {
		claim := agent(ws, "i", spec).init
		claim.Credentials = bearer(token)
		wantStatus(t, "specifier "+spec, refusal(t, g, nil, initFrame(claim)), codes.PermissionDenied)
	}
	person := forge(func(f *forged) {
		f.claims["kind"], f.claims["user"] = "user", "alice"
		delete(f.claims, "impl")
		delete(f.claims, "spec")
	})
	for name, claim := range map[string]*aetherv1.InitConnection{
		"another user": user("bob", "w", ws).init, "user in another workspace": user("alice", "w", "elsewhere", ws).init,
	} {
		claim.Credentials = bearer(person)
		wantStatus(t, name, refusal(t, g, nil, initFrame(claim)), codes.PermissionDenied)
	}
}

// swapClaims puts the claims of another token between header and signature.
func swapClaims(token, other string) string {
	a, b := strings.Split(token, "."), strings.Split(other, ".")
	return a[0] + "." + b[1] + "." + a[2]
}

// A session never outlives its credential.
func testExpiry(t *testing.T, g *gateway) {
	ws := workspace(t)
	id := agent(ws, "i", "s")
	f := agentClaims(ws)
	end := time.Now().Add(3 * time.Second)
	f.claims["exp"] = end.Unix()
	p := connect(t, g, id, credentials(map[string]string{"bearer_token": f.sign()}))
	s := p.end()
	wantStatus(t, "an expired session", s, codes.Unauthenticated)
	if early := time.Until(time.Unix(end.Unix(), 0)); early > 0 {
		t.Errorf("the session ended %v before its credential", early)
	}
	within(t, 5*time.Second+atOnce, end, "the end of an expired session")
}
