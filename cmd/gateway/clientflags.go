package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/version"
)

const defaultAddr = "127.0.0.1:50051"

// clientFlags say where the gateway is, as whom to connect and by which
// credential.
type clientFlags struct {
	Addr  string `placeholder:"HOST:PORT" help:"The gateway's gRPC address; of several gateways of a deployment with commas between them, the first that serves (default: AETHER_ADDR, AETHER_GRPC_ADDR, the data directory's gateway, 127.0.0.1:50051)."`
	Token string `placeholder:"JWT" help:"The credential (default: AETHER_TOKEN, else one is made with the data directory's key)."`
	As    string `placeholder:"ADDRESS" help:"Who to be, by address: ag::w::i::s, tu::w::i::s, tb::w::i (a worker), us::user::window, sv::i::s, br::i::s."`
	identityFlags
	Window  string `placeholder:"WINDOW" help:"For --kind user: the window (default: cli)."`
	Timeout string `placeholder:"DURATION" help:"How long to wait for the gateway (default: 5s), and with send for all of it (default: 30s more)."`
	tlsFlags
	keyFlags
}

// principal is who a client command is, in the two forms that it needs.
type principal struct {
	identity  client.Identity
	workspace string // where a user starts
	claims    auth.Claims
}

// connect connects as the flags say. near is an address that tells a user's
// workspace where the flags do not.
func (f *clientFlags) connect(ctx context.Context, p *program, near string, o client.Options) (*client.Client, *target, error) {
	t := &target{name: p.name(), keyFrom: f.source(p)}
	var err error
	if t.addr, t.from, err = f.address(p); err != nil {
		return nil, nil, err
	}
	addrs := strings.Split(t.addr, ",")
	o.Addr, o.Others = addrs[0], addrs[1:]
	switch env := p.getenv("AETHER_TOKEN"); {
	case f.Token != "":
		o.Token, t.token = f.Token, "--token"
	case env != "":
		o.Token, t.token = env, "AETHER_TOKEN"
	}
	o.Token = strings.TrimPrefix(o.Token, "Bearer ")
	t.apiKey = strings.HasPrefix(o.Token, auth.APIKeyPrefix)
	var own bool
	if o.TLS, own, err = f.transport(p); err != nil {
		return nil, nil, err
	}
	if own && o.Token == "" {
		t.token = certificateFlag
	}
	who, err := f.principal(o.Token, near)
	if err != nil {
		return nil, nil, err
	}
	if o.Token == "" && !own {
		if o.Token, err = f.mint(p, who.claims); err != nil {
			return nil, nil, err
		}
	}
	t.who = who.identity.String()
	o.Identity, o.Workspace = who.identity, who.workspace
	o.AllowPlaintext = f.Plaintext
	o.Name = "gateway-cli/" + version.Version()
	c, err := f.reach(ctx, p, t, o)
	if err != nil {
		return nil, nil, t.explainClaim(err)
	}
	return c, t, nil
}

// mint makes a credential with the key of a data directory or a file.
func (f *clientFlags) mint(p *program, c auth.Claims) (string, error) {
	keys, err := f.load(p)
	if err != nil {
		var usage usageError
		if errors.As(err, &usage) {
			return "", err
		}
		return "", fmt.Errorf("no credential: give one with --token or AETHER_TOKEN; none could be made either: %w", err)
	}
	c.Issuer, c.Audience, c.ExpiresAt = f.issuer(p), []string{f.audience(p)}, time.Now().Add(exampleLife)
	key, err := keys.Signer()
	if err != nil {
		return "", fmt.Errorf("no credential: give one with --token or AETHER_TOKEN; none could be made either: %s: %w", f.source(p), err)
	}
	return auth.Mint(key, c)
}

// principal is who the flags name, or, without any, whom the token is for.
func (f *clientFlags) principal(token, near string) (principal, error) {
	switch {
	case f.As != "" && f.Kind != "":
		return principal{}, usagef("--as and --kind name two principals; give one")
	case f.As != "":
		return f.fromAddress(near, token)
	case f.Kind != "":
		return f.fromFlags()
	case token == "":
		return principal{}, usagef("say who to be with --as ADDRESS, such as --as us::alice::cli, or with --kind")
	}
	in, err := auth.Inspect(noContext, token, nil)
	if err != nil {
		return principal{}, fmt.Errorf("the token cannot be read: %w", err)
	}
	c := in.Claims
	f.Kind, f.Impl, f.Spec, f.User = c.Kind, c.Impl, c.Spec, c.User
	if len(f.Workspace) == 0 {
		f.Workspace = slices.DeleteFunc(slices.Clone(c.Workspaces), func(w string) bool { return w == auth.AllWorkspaces })
	}
	if strings.Contains(f.Spec, "*") || f.Kind == auth.KindOperator || f.Kind == auth.KindAgent && len(f.Workspace) != 1 {
		return principal{}, usagef("the token does not say who exactly to be; say it with --as ADDRESS")
	}
	return f.fromFlags()
}

// fromAddress is the principal with that address.
func (f *clientFlags) fromAddress(near, token string) (principal, error) {
	a, err := address.Parse(f.As)
	if err != nil {
		return principal{}, usagef("--as: %v", err)
	}
	if f.Impl != "" || f.Spec != "" || f.User != "" || f.Window != "" {
		return principal{}, usagef("--impl, --spec, --user and --window go with --kind, not with --as")
	}
	f.Impl, f.Spec, f.User, f.Window = a.Implementation(), a.Specifier(), a.UserID(), a.Window()
	switch a.Prefix() {
	case address.PrefixAgent:
		f.Kind = auth.KindAgent
	case address.PrefixUniqueTask, address.PrefixTaskBroadcast:
		f.Kind = auth.KindTask
	case address.PrefixService:
		f.Kind = auth.KindService
	case address.PrefixBridge:
		f.Kind = auth.KindBridge
	case address.PrefixUser:
		f.Kind = auth.KindUser
		if to, err := address.Parse(near); err == nil && len(f.Workspace) == 0 && to.Workspace() != "" {
			f.Workspace = []string{to.Workspace()}
		}
		if in, err := auth.Inspect(noContext, token, nil); err == nil && len(f.Workspace) == 0 && len(in.Claims.Workspaces) == 1 {
			f.Workspace = in.Claims.Workspaces
		}
	case address.PrefixTask:
		return principal{}, usagef("--as %s: the gateway gives such a task its id; connect as a worker with --as tb::%s::%s", f.As, a.Workspace(), a.Implementation())
	default:
		return principal{}, usagef("--as %s: nobody connects as this address; it is one that many listen to", f.As)
	}
	if w := a.Workspace(); w != "" {
		f.Workspace = []string{w}
	}
	if f.Kind == auth.KindUser && len(f.Workspace) == 0 {
		return principal{}, usagef("--as %s: say in which workspace with --workspace W", f.As)
	}
	return f.fromFlags()
}

// fromFlags is the principal of --kind and its companions.
func (f *clientFlags) fromFlags() (principal, error) {
	if f.Kind == auth.KindOperator {
		return principal{}, usagef("an operator connects as no principal; use --as with another identity")
	}
	if err := f.check(); err != nil {
		return principal{}, err
	}
	who := principal{claims: f.claims()}
	ws := ""
	if len(f.Workspace) > 0 {
		ws = f.Workspace[0]
	}
	switch f.Kind {
	case auth.KindAgent:
		who.identity = client.Agent(ws, f.Impl, f.Spec)
	case auth.KindTask:
		who.identity = client.Task(ws, f.Impl)
		if f.Spec != "" {
			who.identity = client.UniqueTask(ws, f.Impl, f.Spec)
		}
	case auth.KindUser:
		who.identity, who.workspace = client.User(f.User, first(f.Window, "cli")), ws
	case auth.KindWorkflowEngine:
		who.identity = client.WorkflowEngine(f.Spec)
	case auth.KindMetricsBridge:
		who.identity = client.MetricsBridge(f.Spec)
	case auth.KindOrchestrator:
		who.identity = client.Orchestrator(f.Impl, f.Spec, "*")
	case auth.KindService:
		who.identity = client.Service(f.Impl, f.Spec)
	case auth.KindBridge:
		who.identity = client.Bridge(f.Impl, f.Spec)
	}
	return who, nil
}
