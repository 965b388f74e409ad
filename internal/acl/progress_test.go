package acl

import (
	"testing"

	"github.com/aether-gateway/gateway/internal/address"
)

// denying denies sending to one address.
type denying string

func (d denying) Effect(_ *Principal, action Action, a address.Address) Effect {
	if action == ActionSend && a.String() == string(d) {
		return Deny
	}
	return Allow // which opens nothing here
}

type inW struct{}

func (inW) InWorkspace(user, workspace string) bool { return user == "u" && workspace == "w" }
func (inW) InAny(string, WorkspaceSet) bool         { return false }
func (inW) Barred(string, string) bool              { return false }

func TestDecideProgress(t *testing.T) {
	t.Parallel()
	parse := func(s string) address.Address {
		a, err := address.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	pg, elsewhere := parse("pg::w"), parse("pg::v")
	for _, k := range append(Kinds(), KindUnknown) {
		p := &Principal{Kind: k, Workspace: "w", Workspaces: Workspaces("w")}
		reports := k == Agent || k == UniqueTask || k == Task || k == Service
		for _, rules := range []Rules{nil, denying("x")} {
			if d := DecideProgress(p, pg, rules); d.Allowed != reports {
				t.Errorf("%s: %v", k, d)
			}
			if d := DecideProgress(p, elsewhere, rules); d.Allowed {
				t.Errorf("%s reports elsewhere", k)
			}
		}
		if DecideProgress(p, pg, denying("pg::w")).Allowed || DecideProgress(p, parse("ga::w"), nil).Allowed {
			t.Errorf("%s passes", k)
		}
	}
	p := &Principal{Kind: Agent, Workspace: "w"}
	for to, want := range map[string]bool{
		"ag::w::i::s": true, "tu::w::i::s": true, "ta::w::i::s": true, "us::u::1": true, "uw::u::w": true,
		"ag::v::i::s": false, "us::v::1": false, "uw::v::w": false, "sv::i::s": false, "br::i::s": false, "ga::w": false, "tb::w::i": false,
	} {
		if d := DecideRecipient(p, parse(to), "w", inW{}, denying("x")); d.Allowed != want {
			t.Errorf("%s: %v", to, d)
		}
		if DecideRecipient(p, parse(to), "w", inW{}, denying(to)).Allowed {
			t.Errorf("%s: the rule does not count", to)
		}
	}
	if DecideProgress(nil, pg, nil).Allowed || DecideRecipient(p, parse("us::u::1"), "w", nil, nil).Allowed {
		t.Error("nobody is let in")
	}
}
