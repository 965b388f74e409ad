package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/policy/policytest"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// ruler rules as an operator does, on one gateway after the other.
type ruler struct {
	tb    testing.TB
	on    []adminv1.AdminClient
	token string
	turn  int
	ids   []int64
}

func newRuler(tb testing.TB, gateways ...*gateway) *ruler {
	tb.Helper()
	token, err := createToken("--kind", "operator")
	check(tb, err)
	r := &ruler{tb: tb, token: token}
	for _, g := range gateways {
		conn, err := grpc.NewClient("passthrough:///"+g.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
		check(tb, err)
		tb.Cleanup(func() { _ = conn.Close() })
		r.on = append(r.on, adminv1.NewAdminClient(conn))
	}
	return r
}

// call gives the next gateway and what a call on it needs.
func (r *ruler) call() (adminv1.AdminClient, context.Context, context.CancelFunc) {
	r.turn++
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+r.token), patience)
	return r.on[r.turn%len(r.on)], ctx, cancel
}

func (r *ruler) tryAdd(rule policytest.Rule) (int64, error) {
	client, ctx, cancel := r.call()
	defer cancel()
	added, err := client.AddRule(ctx, &adminv1.AddRuleRequest{Rule: &adminv1.Rule{
		Effect: rule.Effect, Principal: rule.Principal, Action: rule.Action, Address: rule.Address, Grammar: rule.Grammar,
	}})
	return added.GetRule().GetId(), err
}

func (r *ruler) add(list ...policytest.Rule) {
	r.tb.Helper()
	for _, rule := range list {
		id, err := r.tryAdd(rule)
		check(r.tb, err)
		if !slices.Contains(r.ids, id) { // the same rule may have been made up twice
			r.ids = append(r.ids, id)
		}
	}
}

func (r *ruler) removeAll() {
	r.tb.Helper()
	for _, id := range r.ids {
		client, ctx, cancel := r.call()
		_, err := client.RemoveRule(ctx, &adminv1.RemoveRuleRequest{Id: id})
		cancel()
		check(r.tb, err)
	}
	r.ids = nil
}

// askAll sends a message to each address and returns what became of it.
func (p *peer) askAll(to []string, app string) ([]string, error) {
	for i, address := range to {
		m := fitting(strings.SplitN(address, "::", 2)[0], address)
		m.RequestId, m.AppWorkspace = "rule-"+strconv.Itoa(i), app
		if err := p.send(m); err != nil {
			return nil, err
		}
	}
	got := make([]string, len(to))
	for i := range to {
		_, refusal, err := p.answer("rule-" + strconv.Itoa(i))
		switch {
		case err != nil:
			return nil, err
		case refusal != nil:
			got[i] = refusal.GetCode()
		default:
			got[i] = policytest.Stored
		}
	}
	return got, nil
}

// TestServeRow18Rules: what senders of each kind on two gateways may do with
// rules, on the real broker, database and Redis, is what an oracle says, and a
// change of rules on either reaches both in time.
func TestServeRow18Rules(t *testing.T) {
	t.Parallel()
	broker, database := testservices.RabbitMQ(t).URL(), testservices.Postgres(t).URL()
	redis := "AETHER_REDIS_URL=" + testservices.Redis(t).URL()
	gateways := []*gateway{startServe(t, broker, database, redis, "AETHER_INSTANCE_ID=a"), startServe(t, broker, database, redis, "AETHER_INSTANCE_ID=b")}
	rules := newRuler(t, gateways...)

	type asker struct {
		*peer
		policytest.Sender
	}
	var askers []asker
	owns := []string{"wa", "wb"}
	world := policytest.World{Members: map[string][]string{}}
	watchers := make([]*peer, len(gateways))
	for i, g := range gateways {
		own := owns[i]
		with := func(id identity, s policytest.Sender) {
			t.Helper()
			p := connect(t, g, id)
			s.Identity = p.name()
			askers = append(askers, asker{p, s})
		}
		in := []string{own}
		with(agent(own, "impl", "1"), policytest.Sender{Kind: "agent", Workspace: own})
		with(uniqueTask(own, "impl", "1"), policytest.Sender{Kind: "unique_task", Workspace: own})
		with(task(own, "impl"), policytest.Sender{Kind: "non_unique_task", Workspace: own})
		with(user("in-"+own, "1", own), policytest.Sender{Kind: "user", Workspace: own})
		nowhere := user("nowhere-"+own, "1", own, "x-"+own)
		nowhere.init.Workspace = ""
		with(nowhere, policytest.Sender{Kind: "user"})
		with(engine(own, own), policytest.Sender{Kind: "workflow_engine", Covers: in, App: own})
		with(metricsBridge(own), policytest.Sender{Kind: "metrics_bridge", App: own})
		with(orchestrator("impl", own, own), policytest.Sender{Kind: "orchestrator", Covers: in, App: own})
		with(service("impl", own, own), policytest.Sender{Kind: "service", Covers: in, App: own})
		with(bridge("impl", own), policytest.Sender{Kind: "bridge", App: own})
		world.Members["in-"+own], world.Members["nowhere-"+own] = in, []string{own, "x-" + own}
		watchers[i] = connect(t, g, bridge("watcher", own))
	}
	var names []string
	for _, a := range askers {
		names = append(names, a.Identity)
	}
	good := policytest.Addresses([]string{"wa", "wb", "third"}, []string{"in-wa", "in-wb", "unknown"})
	// Who is a member is known everywhere: in both workspaces a user is written
	// to from the other gateway.
	for i, ws := range owns {
		far := connect(t, gateways[1-i], agent(ws, "far", "1"))
		if !eventually(patience, func() bool {
			_, refusal := far.ask(chat("us::in-"+ws+"::win", "known?"))
			return refusal == nil
		}) {
			t.Fatalf("the member of %s is not known on the other gateway", ws)
		}
		far.leaves()
	}

	r := rand.New(rand.NewPCG(18, 5))
	asked, stored := 0, 0
	for round := range 4 {
		made := policytest.Rules(r, 12*round, names, good)
		rules.removeAll()
		rules.add(made...)
		// The last rule shows that the others have come.
		sign := fmt.Sprintf("ga::round-%d", round)
		last := policytest.Rule{Effect: "deny", Principal: "br::watcher::*", Action: "send", Address: sign, Grammar: "strict"}
		begun := time.Now()
		rules.add(last)
		for i, w := range watchers {
			if !eventually(patience, func() bool {
				_, refusal := w.ask(chat(sign, "come?"))
				return refusal.GetCode() == policytest.Denied
			}) {
				t.Fatalf("the rules do not reach gateway %d", i)
			}
		}
		t.Logf("round %d: %d rules were everywhere after %v", round, len(made), time.Since(begun))
		within(t, atOnce, begun, "a change of rules")

		to := good
		if round == 0 {
			to = slices.Concat(good, policytest.Malformed("wa"))
		}
		answers, errs := make([][]string, len(askers)), make([]error, len(askers))
		var wg sync.WaitGroup
		for i, a := range askers {
			wg.Go(func() { answers[i], errs[i] = a.askAll(to, a.App) })
		}
		wg.Wait()
		all := append(made, last)
		for i, a := range askers {
			check(t, errs[i])
			for k, address := range to {
				want := world.Outcome(a.Sender, address, all)
				if got := answers[i][k]; got != want {
					t.Errorf("round %d: %s to %q: %s, the oracle says %s, with %+v", round, a.Identity, address, got, want, made)
				}
				asked++
				if want == policytest.Stored {
					stored++
				}
			}
		}
	}
	t.Logf("%d decisions, %d stored", asked, stored)
}

// TestServeRulesWithoutDatabase: while the database is away the rules that are
// known stay in force, a change fails and changes nothing; when it is back,
// changes come again.
func TestServeRulesWithoutDatabase(t *testing.T) {
	t.Parallel()
	database := testservices.NewPostgres(t)
	g := startServe(t, testservices.RabbitMQ(t).URL(), database.URL())
	rules := newRuler(t, g)
	sender := connect(t, g, agent("wd", "i", "1"))
	outcome := func(to string) string {
		t.Helper()
		_, refusal := sender.ask(chat(to, "x"))
		return refusal.GetCode()
	}
	becomes := func(to, want string) {
		t.Helper()
		if !eventually(patience, func() bool { return outcome(to) == want }) {
			t.Fatalf("%q does not come at %s", want, to)
		}
	}
	deny := func(address string) policytest.Rule {
		return policytest.Rule{Effect: "deny", Principal: "ag::wd::*", Action: "send", Address: address, Grammar: "subtree"}
	}
	rules.add(deny("ga::wd"), policytest.Rule{Effect: "allow", Principal: "ag::wd::i::1", Action: "send", Address: "br::x::*", Grammar: "strict"})
	becomes("ga::wd", policytest.Denied)
	becomes("br::x::1", "")

	database.Kill()
	g.awaitReady(t, false, atOnce)
	begun := time.Now()
	if _, err := rules.tryAdd(deny("gu::wd")); statusOf(err).Code() != codes.Unavailable {
		t.Errorf("a rule without a database: %v, want UNAVAILABLE", err)
	}
	within(t, atOnce, begun, "the refusal of a rule")
	for range 3 {
		sender.beats(1)
		for to, want := range map[string]string{"ga::wd": policytest.Denied, "br::x::1": "", "gu::wd": "", "sv::x::1": policytest.Denied} {
			if got := outcome(to); got != want {
				t.Errorf("without the database, to %s: %q, want %q", to, got, want)
			}
		}
	}

	database.Start()
	g.awaitReady(t, true, recovery)
	if got := outcome("gu::wd"); got != "" {
		t.Errorf("the rule whose addition failed is in force: %q", got)
	}
	if !eventually(patience, func() bool {
		_, err := rules.tryAdd(deny("gu::wd"))
		return err == nil
	}) {
		t.Fatal("no rule can be added")
	}
	becomes("gu::wd", policytest.Denied)
}
