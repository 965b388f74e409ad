package grants

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/policy"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/store/sqlite"
	"github.com/aether-gateway/gateway/internal/store/sqlite/sqlitetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is what the service asks of others: members, sessions, time.
type world struct {
	mu       sync.Mutex
	out      map[[2]string]bool // users that are in no workspace
	sessions map[string]string  // identities by session
	now      time.Time
	void     map[string]bool // proofs that count no more, by id
}

func newWorld() *world {
	return &world{out: map[[2]string]bool{}, sessions: map[string]string{}, void: map[string]bool{}, now: time.Now().Truncate(time.Second)}
}

func (w *world) InWorkspace(user, ws string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.out[[2]string{user, ws}]
}
func (w *world) InAny(string, acl.WorkspaceSet) bool { return true }
func (w *world) Barred(string, string) bool          { return false }

func (w *world) Held(name string) (held, certain bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, identity := range w.sessions {
		held = held || identity == name
	}
	return held, true
}

func (w *world) Find(_ context.Context, id string) (presence.Holding, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	identity, ok := w.sessions[id]
	if !ok {
		return presence.Holding{}, presence.ErrNotFound
	}
	return presence.Holding{SessionID: id, Names: []string{identity}}, nil
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) forward(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) decide(p *acl.Principal, to address.Address) acl.Decision {
	return acl.Decide(p, to, w)
}

func (w *world) revoked(p *Proof, _ string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.void[p.ID]
}

func (w *world) options() Options {
	return Options{Decide: w.decide, Members: w, Presence: w, Now: w.clock, Revoked: w.revoked}
}

// service is one on a store of its own. change may be nil.
func (w *world) service(t *testing.T, change func(*Options)) *Service {
	t.Helper()
	ctx := context.Background()
	file := sqlitetest.Open(t, filepath.Join(t.TempDir(), "test.db"))
	t.Cleanup(func() { _ = file.Close() })
	s, err := sqlite.Open(ctx, file, sqlite.Options{Now: w.clock})
	if err != nil {
		t.Fatal(err)
	}
	o := w.options()
	o.Store, o.Feed = s, s
	if change != nil {
		change(&o)
	}
	g := New(o)
	t.Cleanup(g.Close)
	<-g.Known()
	return g
}

// caller is an identity as it asks, in a session that is called like it.
func (w *world) caller(t testing.TB, identity string, workspaces ...string) *Caller {
	t.Helper()
	p, err := policy.PrincipalOf(identity, workspaces...)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sessions["session of "+identity] = identity
	return &Caller{Principal: p, Session: "session of " + identity, Proof: &Proof{ID: "proof of " + identity}}
}

func (s *Service) asks(t *testing.T, c *Caller, op *aetherv1.AuthorityGrantOperation) *aetherv1.AuthorityGrantResponse {
	t.Helper()
	answer, err := s.Operate(context.Background(), c, op)
	if (err == nil) != answer.GetSuccess() || err != nil && answer.GetError() != string(err.Code) {
		t.Fatalf("%v: %v and %v", op, answer, err)
	}
	return answer
}

func (s *Service) makes(t *testing.T, c *Caller, op *aetherv1.AuthorityGrantOperation) *aetherv1.ACLAuthorityGrantInfo {
	t.Helper()
	answer := s.asks(t, c, op)
	if !answer.GetSuccess() {
		t.Fatalf("%v: %v", op, answer)
	}
	return answer.GetGrant()
}

func exchangeOp(change func(*aetherv1.AuthorityGrantExchangeRequest)) *aetherv1.AuthorityGrantOperation {
	r := &aetherv1.AuthorityGrantExchangeRequest{AudienceType: "agent", AudienceId: agentA, MayDelegate: true, RemainingHops: 3}
	if change != nil {
		change(r)
	}
	return &aetherv1.AuthorityGrantOperation{Op: aetherv1.AuthorityGrantOperation_OP_TYPE_EXCHANGE, ExchangeRequest: r}
}

func deriveOp(parent, delegate string, change func(*aetherv1.AuthorityGrantDeriveRequest)) *aetherv1.AuthorityGrantOperation {
	r := &aetherv1.AuthorityGrantDeriveRequest{ParentGrantId: parent}
	if delegate != "" {
		r.Delegate = &aetherv1.PrincipalRef{PrincipalType: "agent", PrincipalId: delegate}
	}
	if change != nil {
		change(r)
	}
	return &aetherv1.AuthorityGrantOperation{Op: aetherv1.AuthorityGrantOperation_OP_TYPE_DERIVE, DeriveRequest: r}
}

const (
	userU  = "us::u::w1"
	agentA = "ag::w::i::a"
	agentB = "ag::w::i::b"
	agentC = "ag::w::i::c"
)

// sends tries to send under a grant and returns the code of the refusal.
func (s *Service) sends(t *testing.T, c *Caller, grant, to, workspace string) string {
	t.Helper()
	a, err := address.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	onBehalf, _, refused := s.Authorize(c.Principal, c.Session, &aetherv1.AuthorizationContext{GrantId: grant}, a, workspace)
	if refused != nil {
		return string(refused.Code)
	}
	if len(onBehalf) == 0 {
		t.Errorf("nobody is acted for")
	}
	return ""
}
