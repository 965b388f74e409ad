package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// two are two gateways of one deployment.
type two struct{ a, b *gateway }

func startTwo(tb testing.TB) *two {
	tb.Helper()
	broker, database := testservices.RabbitMQ(tb).URL(), testservices.Postgres(tb).URL()
	redis := "AETHER_REDIS_URL=" + testservices.Redis(tb).URL()
	t := &two{a: startServe(tb, broker, database, redis, "AETHER_INSTANCE_ID=a")}
	t.b = startServe(tb, broker, database, redis, "AETHER_INSTANCE_ID=b")
	return t
}

// resumes makes a session take over from another.
func resumes(old *peer) option {
	id := old.ack.GetSessionId()
	return func(i *aetherv1.InitConnection) { i.ResumeSessionId = id }
}

func TestTwoGateways(t *testing.T) {
	alone(t)
	d := startTwo(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *two)
	}{
		{"resume elsewhere", testResumeElsewhere},
		{"race over gateways", testRace},
		{"tracked sends", testTracked},
		{"short tokens", testShortTokens},
		{"key revoked", testKeyRevoked},
		{"stopped gateway", testStoppedGateway},
		{"holder killed", testHolderKilled},
		{"many streams terminated", testManyTerminated},
		{"command line", testTwoByHand},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, d) })
	}
}

// A reader acknowledges 500 of 2,000, is cut without a word, and comes back on
// the other gateway: the next is 501, at once and without a hole.
func testResumeElsewhere(t *testing.T, d *two) {
	ws := workspace(t)
	to := agent(ws, "i", "s")
	sender := connect(t, d.b, user(ws, "w", ws))
	sender.stored(to.name, numbered("m", 1, 2000)...)
	proxy := faultproxy.New(t, d.a.grpc)
	far := &gateway{process: &process{grpc: proxy.Addr()}}
	old := connect(t, far, to, client(1000))
	for range 600 {
		old.read()
	}
	old.acks(500)
	old.synced()
	proxy.Blackhole(true)
	begun := time.Now()
	next := connect(t, d.b, to, client(10_000), resumes(old))
	first := next.read()
	t.Logf("the first message came after %v", time.Since(begun))
	within(t, atOnce, begun, "the first message on the other gateway")
	if string(first.GetPayload()) != numbered("m", 501, 501)[0] || !first.GetRedelivered() || !next.ack.GetResumed() {
		t.Errorf("it goes on with %v", first)
	}
	sender.stored(to.name, "last")
	wantTexts(t, next.until("last"), numbered("m", 502, 2000))
	next.acks(1501)
	next.synced()
	next.leaves()
}

// Of twenty clients that race for an identity over two gateways one wins.
func testRace(t *testing.T, d *two) {
	ws := workspace(t)
	for round := range long(10, 50) {
		id := agent(ws, "i", fmt.Sprint(round))
		init, err := id.frame()
		check(t, err)
		wires := make([]*wire, 20)
		errs := make([]error, 20)
		var wg sync.WaitGroup
		for i := range wires {
			g := []*gateway{d.a, d.b}[i%2]
			wires[i] = open(t, g.grpc)
			wg.Go(func() { errs[i] = wires[i].greet(init) })
		}
		wg.Wait()
		winners := 0
		for _, err := range errs {
			switch {
			case err == nil:
				winners++
			case statusOf(err).Code() != codes.AlreadyExists:
				t.Errorf("round %d: %v", round, err)
			}
		}
		if winners != 1 {
			t.Errorf("round %d: %d winners", round, winners)
		}
		for _, w := range wires {
			w.cut()
		}
	}
}

// A gateway that is stopped for longer than its leases last and goes on has
// lost them (delivery rule L3): what its client sends is not stored, what it
// acknowledges does not count, and its stream ends.
func testStoppedGateway(t *testing.T, d *two) {
	ws := workspace(t)
	held, target := agent(ws, "i", "held"), agent(ws, "i", "target")
	sender, reader := connect(t, d.b, user(ws, "w", ws)), connect(t, d.b, target)
	stale := connect(t, d.a, held, client(1000))
	sender.stored(held.name, numbered("m", 1, 20)...)
	for range 20 {
		stale.read()
	}
	check(t, syscall.Kill(d.a.pid, syscall.SIGSTOP))
	// It gets these when it goes on, and then it is nobody any more.
	check(t, stale.send(chat(target.name, "from the past")))
	check(t, stale.acknowledge(20))
	next := reconnect(t, d.b, held, client(1000))
	check(t, syscall.Kill(d.a.pid, syscall.SIGCONT))
	if err := stale.end(); err.Code() != codes.Unavailable && err.Code() != codes.Aborted {
		t.Errorf("the stream of the stopped gateway ended with %v", err)
	}
	for _, want := range numbered("m", 1, 20) {
		if m := next.read(); string(m.GetPayload()) != want {
			t.Fatalf("got %q, want %q", m.GetPayload(), want)
		}
	}
	sender.stored(target.name, "last")
	wantTexts(t, reader.until("last"), nil)
	// Nothing was acknowledged by who had the right to.
	next.cut()
	next = reconnect(t, d.b, held, client(1000))
	if m := next.read(); string(m.GetPayload()) != numbered("m", 1, 1)[0] {
		t.Errorf("after what was acknowledged too late it goes on with %v", m)
	}
	next.cut()
	d.a.awaitReady(t, true, atOnce)
}

// The gateway that holds an identity is killed: it is accepted on the other
// within seconds, and everything sent meanwhile arrives, once.
func testHolderKilled(t *testing.T, d *two) {
	ws := workspace(t)
	to := agent(ws, "i", "s")
	sender := connect(t, d.b, user(ws, "w", ws))
	old := connect(t, d.a, to, client(1000))
	sender.stored(to.name, numbered("m", 1, 100)...)
	for range 100 {
		old.read()
	}
	old.acks(60)
	old.synced()
	old.beats(3) // positions are committed about once in a second
	outcome := connect(t, d.b, agent(ws, "i", "tracker")).asks(tracked("ga::"+ws, "to all", aetherv1.TrackingMode_TRACKING_MODE_ALL))
	old.until("to all")
	d.a.kill()
	begun := time.Now()
	sender.stored(to.name, numbered("m", 101, 200)...)
	next := reconnect(t, d.b, to, client(1000))
	t.Logf("the identity was free after %v", time.Since(begun))
	within(t, atOnce, begun, "the identity of a killed gateway")
	sender.stored(to.name, "last")
	wantTexts(t, next.until("last"), numbered("m", 61, 200))
	next.acks(141)
	next.synced()
	next.leaves()
	r := outcome()
	wantOutcome(t, r, aetherv1.SendReceipt_STATUS_NACKED, "gateway_lost", 0, r.GetEligible()) // a dead gateway is a nack of its subscribers
	d.a.restart()
}

// A gateway with many streams under traffic is told to end: all are told so, it
// ends in time, nothing with a receipt is lost, and the clients go on at the
// other gateway.
func testManyTerminated(t *testing.T, d *two) {
	ws := workspace(t)
	streams := long(300, 1000)
	peers := make([]*peer, streams)
	for i := range peers {
		peers[i] = connect(t, d.a, agent(ws, "i", fmt.Sprint(i)), client(1000))
	}
	l := newLoad(t, d.b, peers[0].name(), time.Millisecond, crowd(ws))
	sender := connect(t, d.b, user(ws+"-s", "w", ws))
	for i, p := range peers[1:] {
		sender.stored(p.name(), fmt.Sprint("before ", i+1))
	}
	begun := time.Now()
	d.a.terminate()
	hints := map[int64]bool{}
	for _, p := range peers {
		m, err := p.await(func(m *down) bool { return m.GetSignal() != nil })
		check(t, err)
		s := m.GetSignal()
		if s.GetType() != aetherv1.Signal_SIGNAL_TYPE_GRACEFUL_DISCONNECT {
			t.Fatalf("got %v", s)
		}
		hints[s.GetReconnectAfterMs()] = true
	}
	t.Logf("all were told after %v, %d different times to come back", time.Since(begun), len(hints))
	within(t, atOnce, begun, "the notice to all")
	if len(hints) < streams/4 {
		t.Errorf("%d clients were given %d different times to come back", streams, len(hints))
	}
	d.a.awaitExit(25 * time.Second)
	for i, p := range peers {
		sender.stored(p.name(), "after")
		next := reconnect(t, d.b, p.id, client(1000), resumes(p))
		if i == 0 {
			check(t, l.end())
			sender.stored(p.name(), "last")
			next.acked = 1
			got := slices.DeleteFunc(texts(next.until("last")), func(text string) bool { return text == "after" })
			l.verify(t, got)
			continue
		}
		wantTexts(t, []*aetherv1.IncomingMessage{next.read(), next.read()}, []string{fmt.Sprint("before ", i), "after"})
		next.cut()
		p.cut()
	}
	d.a.restart()
}

// What the README tells a new user to try: the agent on one gateway, the user on
// the other, the first one killed.
func testTwoByHand(t *testing.T, d *two) {
	ws := workspace(t)
	env := []string{"AETHER_JWT_KEY_FILE=" + keyFile}
	to := agent(ws, "i", "s")
	type result struct {
		out, errs string
		code      int
		err       error
	}
	ended := make(chan result, 1)
	go func() {
		var r result
		r.out, r.errs, r.code, r.err = command(env, "connect", "--addr", d.a.grpc+","+d.b.grpc, "--as", to.name, "--count", "2")
		ended <- r
	}()
	w := connect(t, d.b, user("watcher", "w", ws))
	if !eventually(patience, func() bool {
		check(t, w.stream.Send(&up{Payload: &aetherv1.UpstreamMessage_ConnectionStatusRequest{
			ConnectionStatusRequest: &aetherv1.ConnectionStatusRequest{
				RequestId: "1", Principal: &aetherv1.PrincipalRef{PrincipalType: "agent", PrincipalId: to.name},
			},
		}}))
		m, err := w.await(func(m *down) bool { return m.GetConnectionStatusResponse() != nil })
		check(t, err)
		return m.GetConnectionStatusResponse().GetConnected()
	}) {
		t.Fatal("the agent does not connect")
	}
	send := func(text string) {
		t.Helper()
		_, stderr, code, err := command(env, "send", "--addr", d.b.grpc, "--as", "us::alice::cli", "--to", to.name, "--text", text)
		if err != nil || code != 0 {
			t.Fatalf("send: exit %d, %v\n%s", code, err, stderr)
		}
	}
	send("before")
	d.a.kill()
	send("after")
	r := <-ended
	if r.err != nil || r.code != 0 || !strings.Contains(r.out, "before") || !strings.Contains(r.out, "after") {
		t.Errorf("exit %d, %v\n%s%s", r.code, r.err, r.out, r.errs)
	}
	d.a.restart()
}

// A client may ping every ten seconds, with a stream and without one.
func TestClientPings(t *testing.T) {
	t.Parallel()
	g := startDev(t)
	for _, every := range []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second} {
		t.Run(every.String(), func(t *testing.T) {
			t.Parallel()
			conn, err := grpc.NewClient("passthrough:///"+g.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: every, Timeout: patience, PermitWithoutStream: true}))
			check(t, err)
			defer conn.Close()
			conn.Connect()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			for s := conn.GetState(); s != connectivity.Ready; s = conn.GetState() {
				if !conn.WaitForStateChange(ctx, s) {
					t.Fatalf("the connection is %v", s)
				}
			}
			pinging, cancel := context.WithTimeout(context.Background(), max(35*time.Second, 5*every/2))
			defer cancel()
			if conn.WaitForStateChange(pinging, connectivity.Ready) {
				t.Errorf("a client that pings every %v was thrown out: %v", every, conn.GetState())
			}
		})
	}
}

// A peer that has gone without a word is found within half a minute.
func TestSilentPeer(t *testing.T) {
	t.Parallel()
	g := startDev(t)
	proxy := faultproxy.New(t, g.grpc)
	id := agent("silent-peer", "i", "s")
	connect(t, &gateway{process: &process{grpc: proxy.Addr()}}, id)
	proxy.Blackhole(true)
	begun := time.Now()
	next := reconnect(t, g, id)
	t.Logf("it was found after %v", time.Since(begun))
	within(t, 30*time.Second+atOnce, begun, "the discovery of a silent peer")
	next.leaves()
}
