package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/config"
)

type keyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Make an API key, and print it, and nothing else, on standard output. It is shown this once."`
	List   keyListCmd   `cmd:"" help:"List the API keys, without the keys."`
	Revoke keyRevokeCmd `cmd:"" help:"Make an API key worthless; the sessions that go on it end, on every gateway."`
}

type keyCreateCmd struct {
	Name string `required:"" placeholder:"NAME" help:"What the key is for, for people: up to 128 bytes of printable text that no other good key has."`
	identityFlags
	TTL     string   `name:"ttl" placeholder:"DURATION" help:"How long it is valid, such as 90d (default: without end; a user's key needs one)."`
	Subject string   `placeholder:"SUB" help:"Whom it is issued to, for the audit (default: the principal)."`
	Role    []string `sep:"none" placeholder:"R" help:"A role, for rules; may be given several times."`
	adminFlags
}

func (c *keyCreateCmd) Run(p *program) error {
	if err := c.check(); err != nil {
		return err
	}
	claims := c.claims()
	key := &adminv1.Key{
		Name: c.Name, Kind: claims.Kind, Workspaces: claims.Workspaces, Implementation: claims.Impl, Specifier: claims.Spec, User: claims.User,
		Subject: c.Subject, Roles: c.Role,
	}
	if c.TTL != "" {
		ttl, err := config.ParseDuration(c.TTL)
		if err != nil || ttl < time.Second {
			return usagef("--ttl: %q is no duration of at least a second", c.TTL)
		}
		key.ExpiresAt = time.Now().Add(ttl).Unix()
	}
	return c.with(p, func(ctx context.Context, o *operator) error {
		made, err := once(ctx, o, o.CreateKey, &adminv1.CreateKeyRequest{Key: key})
		if err != nil {
			return err
		}
		for _, w := range made.GetWarnings() {
			fmt.Fprintf(p.stderr, "gateway: warning: %s\n", lines(w))
		}
		fmt.Fprintf(p.stderr, "key %s is made; it is shown this once\n", made.GetKey().GetKeyId())
		_, err = fmt.Fprintln(p.stdout, made.GetApiKey())
		return err
	})
}

type keyListCmd struct {
	outputFlag
	adminFlags
}

// Help says what the columns mean.
func (*keyListCmd) Help() string {
	return "FOR is the implementation and specifier, or the user. USED is when the key was last shown to a gateway, known some seconds later. " +
		"STATE is good, until a time, expired or revoked; a key that is over is listed for 30 days."
}

func (c *keyListCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		all, err := gather(ctx, o, o.ListKeys, &adminv1.ListKeysRequest{}, everything, (*adminv1.ListKeysResponse).GetKeys)
		if err != nil {
			return err
		}
		return printKeys(p, c.Output, all)
	})
}

func printKeys(p *program, output string, list []*adminv1.Key) error {
	if output == "json" {
		objects := make([]map[string]any, len(list))
		for i, k := range list {
			objects[i] = object(k)
			objects[i]["state"] = keyState(k)
		}
		return json.NewEncoder(p.stdout).Encode(objects)
	}
	return table(p, output, list, []string{"KEY", "NAME", "KIND", "FOR", "WORKSPACES", "CREATED", "USED", "STATE"}, func(k *adminv1.Key) []string {
		whom := k.GetUser()
		if k.GetImplementation() != "" {
			whom = k.GetImplementation() + "::" + k.GetSpecifier()
		} else if whom == "" {
			whom = k.GetSpecifier()
		}
		state := keyState(k)
		if state == "good" && k.GetExpiresAt() > 0 {
			state = "until " + time.Unix(k.GetExpiresAt(), 0).UTC().Format(time.RFC3339)
		}
		return []string{
			k.GetKeyId(), k.GetName(), k.GetKind(), whom, strings.Join(k.GetWorkspaces(), " "), ago(k.GetCreatedAt()), ago(k.GetUsedAt()), state,
		}
	})
}

// keyState is good, expired or revoked.
func keyState(k *adminv1.Key) string {
	switch {
	case k.GetRevokedAt() > 0:
		return "revoked"
	case k.GetExpiresAt() > 0 && k.GetExpiresAt() <= time.Now().Unix():
		return "expired"
	}
	return "good"
}

type keyRevokeCmd struct {
	Key string `arg:"" help:"The key's id, as key list shows it, or its name."`
	outputFlag
	adminFlags
}

func (c *keyRevokeCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		done, err := once(ctx, o, o.RevokeKey, &adminv1.RevokeKeyRequest{Key: c.Key})
		if err != nil {
			return err
		}
		if c.Output == "json" {
			return printKeys(p, c.Output, []*adminv1.Key{done.GetKey()})
		}
		what := "is revoked"
		if done.GetWasRevoked() {
			what = "was revoked already, " + ago(done.GetKey().GetRevokedAt())
		}
		_, err = fmt.Fprintf(p.stdout, "key %s (%s) %s\n", done.GetKey().GetKeyId(), printable(done.GetKey().GetName()), what)
		return err
	})
}

type tokenRevokeCmd struct {
	ID       string `arg:"" optional:"" name:"token-id" help:"A token's id (jti), as token inspect shows it; or the token itself, - to read it from standard input."`
	Subject  string `placeholder:"SUB" help:"Instead: all credentials of this subject that were issued by now."`
	User     string `placeholder:"USER" help:"Instead: all credentials of this user that were issued by now."`
	Identity string `placeholder:"IDENTITY" help:"Instead: all credentials issued by now, as far as they are used for this identity."`
	Reason   string `placeholder:"TEXT" help:"Why, for the audit."`
	adminFlags
}

// Run takes credentials back.
func (c *tokenRevokeCmd) Run(p *program) error {
	given := 0
	request := &adminv1.RevokeRequest{Reason: c.Reason}
	for _, x := range []struct{ what, id string }{{"token", c.ID}, {"subject", c.Subject}, {"user", c.User}, {"identity", c.Identity}} {
		if x.id != "" {
			given++
			request.What, request.Id = x.what, x.id
		}
	}
	if given != 1 {
		return usagef("say what to revoke: a token's id, --subject, --user or --identity, one of them")
	}
	if request.GetWhat() == "token" {
		if err := c.token(p, request); err != nil {
			return err
		}
	}
	return c.with(p, func(ctx context.Context, o *operator) error {
		if _, err := once(ctx, o, o.Revoke, request); err != nil {
			return err
		}
		what := "what was issued until now for the " + request.GetWhat() + " " + printable(request.GetId())
		if request.GetWhat() == "token" {
			what = "a token with the id " + printable(request.GetId())
		}
		// Tokens are not kept: whether there is one, nobody knows.
		_, err := fmt.Fprintf(p.stdout, "%s is refused from now on, if there is any, and sessions on it end\n", what)
		return err
	})
}

// token makes an id of what may be the token itself, which stays here.
func (c *tokenRevokeCmd) token(p *program, request *adminv1.RevokeRequest) error {
	text, err := tokenText(p, c.ID)
	if err != nil {
		return err
	}
	request.Id = text
	if strings.Count(text, ".") != 2 {
		return nil
	}
	in, err := auth.Inspect(noContext, text, nil)
	if err != nil {
		return fmt.Errorf("the token cannot be read: %w", err)
	}
	if in.Claims.ID == "" {
		return fmt.Errorf("the token has no id (jti): revoke its subject, user or identity instead")
	}
	request.Id = in.Claims.ID
	if !in.Claims.ExpiresAt.IsZero() {
		request.Until = in.Claims.ExpiresAt.Add(auth.MaxLeeway).Unix()
	}
	return nil
}
