package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/config"
)

// noContext is for calls that neither wait nor reach anything.
var noContext = context.Background()

type tokenCmd struct {
	Create  tokenCreateCmd  `cmd:"" help:"Print a credential, and nothing else, on standard output."`
	Inspect tokenInspectCmd `cmd:"" help:"Show what a credential says, and whether it is good."`
	Revoke  tokenRevokeCmd  `cmd:"" help:"Take credentials back before they expire; sessions that go on them end, on every gateway."`
}

// identityFlags name a principal part by part.
type identityFlags struct {
	Kind      string   `placeholder:"KIND" help:"agent, task, user, workflow_engine, metrics_bridge, orchestrator, service, bridge or operator."`
	Workspace []string `sep:"none" placeholder:"W" help:"The workspace; may be given several times where the kind allows it."`
	Impl      string   `placeholder:"I" help:"The implementation."`
	Spec      string   `placeholder:"S" help:"The specifier, or the instance of a workflow engine or metrics bridge; '*' in it stands for anything."`
	User      string   `placeholder:"U" help:"The user id."`
}

// needs says which flags a kind takes: r required, o optional, absent refused.
var needs = map[string]map[string]byte{
	auth.KindAgent:          {"workspace": 'r', "impl": 'r', "spec": 'r'},
	auth.KindTask:           {"workspace": 'r', "impl": 'r', "spec": 'o'},
	auth.KindUser:           {"workspace": 'r', "user": 'r'},
	auth.KindWorkflowEngine: {"workspace": 'o', "spec": 'r'},
	auth.KindMetricsBridge:  {"workspace": 'o', "spec": 'r'},
	auth.KindOrchestrator:   {"workspace": 'o', "impl": 'r', "spec": 'r'},
	auth.KindService:        {"workspace": 'o', "impl": 'r', "spec": 'r'},
	auth.KindBridge:         {"workspace": 'o', "impl": 'r', "spec": 'r'},
	auth.KindOperator:       {},
}

var kinds = []string{
	auth.KindAgent, auth.KindTask, auth.KindUser, auth.KindWorkflowEngine, auth.KindMetricsBridge, auth.KindOrchestrator, auth.KindService,
	auth.KindBridge, auth.KindOperator,
}

// check reports every flag that the kind misses or does not take.
func (f *identityFlags) check() error {
	need, ok := needs[f.Kind]
	if !ok {
		if f.Kind == "" {
			return usagef("--kind is missing; it is one of %s", strings.Join(kinds, ", "))
		}
		return usagef("--kind %s does not exist; it is one of %s", f.Kind, strings.Join(kinds, ", "))
	}
	given := map[string]bool{"workspace": len(f.Workspace) > 0, "impl": f.Impl != "", "spec": f.Spec != "", "user": f.User != ""}
	var wrong []string
	for _, name := range []string{"workspace", "impl", "spec", "user"} {
		switch {
		case need[name] == 'r' && !given[name]:
			wrong = append(wrong, "--"+name+" is missing")
		case need[name] == 0 && given[name]:
			wrong = append(wrong, "--"+name+" is not taken")
		}
	}
	if len(wrong) > 0 {
		return usagef("for --kind %s %s", f.Kind, strings.Join(wrong, ", "))
	}
	return nil
}

// claims are the claims of a credential for this principal.
func (f *identityFlags) claims() auth.Claims {
	c := auth.Claims{Kind: f.Kind, Workspaces: slices.Clone(f.Workspace), Impl: f.Impl, Spec: f.Spec, User: f.User}
	if len(c.Workspaces) == 0 {
		c.Workspaces = []string{auth.AllWorkspaces}
	}
	return c
}

type tokenCreateCmd struct {
	identityFlags
	TTL     string   `name:"ttl" default:"24h" help:"How long it is valid, such as 90m, 24h, 30d."`
	Subject string   `placeholder:"SUB" help:"Whom it is issued to, for the audit (default: the principal)."`
	Role    []string `sep:"none" placeholder:"R" help:"A role, for rules; may be given several times."`
	keyFlags
}

func (c *tokenCreateCmd) Run(p *program) error {
	if err := c.check(); err != nil {
		return err
	}
	ttl, err := config.ParseDuration(c.TTL)
	if err != nil {
		return usagef("--ttl: %v", err)
	}
	if ttl < time.Second {
		return usagef("--ttl: %s is too short", c.TTL)
	}
	keys, err := c.load(p)
	if err != nil {
		return err
	}
	key, err := keys.Signer()
	if err != nil {
		return fmt.Errorf("%s: %w", c.source(p), err)
	}
	claims := c.claims()
	claims.Subject, claims.Roles = c.Subject, c.Role
	claims.Issuer, claims.Audience = c.issuer(p), []string{c.audience(p)}
	claims.ExpiresAt = time.Now().Add(ttl)
	token, err := auth.Mint(key, claims)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.stdout, token)
	return err
}

// tokenText is a token as a command got it; - and nothing read it from standard
// input.
func tokenText(p *program, token string) (string, error) {
	if token == "" || token == "-" {
		data, err := io.ReadAll(io.LimitReader(p.stdin, 2*auth.MaxToken))
		if err != nil {
			return "", err
		}
		token = string(data)
	}
	token = strings.TrimPrefix(strings.TrimSpace(token), "Bearer ")
	if token == "" {
		return "", usagef("no token; give it as an argument or on standard input")
	}
	return token, nil
}

type tokenInspectCmd struct {
	Token string `arg:"" optional:"" help:"The credential; - or nothing reads it from standard input, which keeps it out of the process list."`
	keyFlags
}

func (c *tokenInspectCmd) Run(p *program) error {
	token, err := tokenText(p, c.Token)
	if err != nil {
		return err
	}
	// Without any key there is still something to show.
	keys, keyErr := c.load(p)
	if keyErr != nil && (c.KeyFile != "" || c.DataDir != "") {
		return keyErr
	}
	var v *auth.Verifier
	if keyErr == nil {
		var err error
		if v, err = auth.NewVerifier(auth.Options{Keys: keys, Issuer: c.issuer(p), Audience: c.audience(p)}); err != nil {
			return err
		}
	}
	in, err := auth.Inspect(noContext, token, v)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "header:  %s\npayload: %s\n", indent(in.Header), indent(in.Payload))
	if in.ClaimsErr != nil {
		fmt.Fprintf(p.stdout, "claims:  %v\n", in.ClaimsErr)
	}
	if !in.Claims.ExpiresAt.IsZero() {
		fmt.Fprintf(p.stdout, "expires: %s (%s)\n", in.Claims.ExpiresAt.UTC().Format(time.RFC3339), fromNow(in.Claims.ExpiresAt))
	}
	over := !in.Claims.ExpiresAt.IsZero() && !time.Now().Before(in.Claims.ExpiresAt)
	switch {
	case over && in.Err == nil:
		fmt.Fprintln(p.stdout, "checked: refused: the token has expired; a gateway still takes it for connecting until auth.leeway, 10s by default, has passed, and for operators' calls no more")
		return silentError{}
	case !in.Checked:
		fmt.Fprintln(p.stdout, "checked: no, for want of a key (--key-file or --data-dir)")
	case in.Err != nil:
		fmt.Fprintf(p.stdout, "checked: refused: %v\n", in.Err)
		return silentError{}
	default:
		fmt.Fprintln(p.stdout, "checked: good")
	}
	return nil
}

func indent(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return "{}"
	}
	return b.String()
}

func fromNow(t time.Time) string {
	d := time.Until(t).Round(time.Second)
	if d < 0 {
		return config.FormatDuration(-d) + " ago"
	}
	return "in " + config.FormatDuration(d)
}
