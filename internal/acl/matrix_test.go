package acl

import (
	"os"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/address"
)

// members is a fixed membership list: user → workspaces.
type members map[string][]string

func (m members) InWorkspace(user, ws string) bool {
	for _, w := range m[user] {
		if w == ws {
			return true
		}
	}
	return false
}

func (m members) InAny(user string, set WorkspaceSet) bool {
	for _, w := range m[user] {
		if set.Covers(w) {
			return true
		}
	}
	return false
}

func (m members) Barred(string, string) bool { return false }

func parse(t testing.TB, s string) address.Address {
	t.Helper()
	a, err := address.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// senderIn is a principal of a kind, by the name of the kind, that is in the
// workspace, or whose credential covers it. "" is none.
func senderIn(t testing.TB, kind, ws string) *Principal {
	t.Helper()
	set := Workspaces()
	if ws != "" {
		set = Workspaces(ws, "third")
	}
	switch kind {
	case "agent":
		return &Principal{Kind: Agent, Address: parse(t, "ag::own::i::s"), Workspace: ws, Workspaces: set}
	case "unique_task":
		return &Principal{Kind: UniqueTask, Address: parse(t, "tu::own::i::s"), Workspace: ws, Workspaces: set}
	case "non_unique_task":
		return &Principal{Kind: Task, Address: parse(t, "ta::own::i::s"), Workspace: ws, Workspaces: set}
	case "user":
		return &Principal{Kind: User, Address: parse(t, "us::me::win"), Workspace: ws, Workspaces: set}
	case "workflow_engine":
		return &Principal{Kind: WorkflowEngine, Workspaces: set}
	case "metrics_bridge":
		return &Principal{Kind: MetricsBridge, Workspaces: set}
	case "orchestrator":
		return &Principal{Kind: Orchestrator, Workspaces: set}
	case "service":
		return &Principal{Kind: Service, Address: parse(t, "sv::i::s"), Workspaces: set}
	case "bridge":
		return &Principal{Kind: Bridge, Address: parse(t, "br::i::s"), Workspaces: set}
	}
	t.Fatalf("no such sender: %s", kind)
	return nil
}

// targets are the addresses of the table's columns; WS is the workspace.
var targets = map[string]string{
	"ag": "ag::WS::i::s", "tu": "tu::WS::i::s", "ta": "ta::WS::i::s", "tb": "tb::WS::i",
	"us": "us::user-of-WS::w", "uw": "uw::u::WS", "ga": "ga::WS", "gu": "gu::WS", "pg": "pg::WS",
	"event": "event::WS", "metric": "metric::WS", "any": "metric::*", "sink": "metric::receiver0",
	"sv": "sv::i::s", "br": "br::i::s",
}

var letters = map[Reason]string{
	ReasonNone: "+", ReasonKind: "k", ReasonStoredForm: "s", ReasonWorkspace: "w", ReasonNotMember: "u", ReasonNoWorkspace: "n",
}

func TestMatrix(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/matrix.txt")
	if err != nil {
		t.Fatal(err)
	}
	who := members{"user-of-own": {"own"}, "user-of-other": {"other"}}
	var (
		relation string
		columns  []string
		cells    int
		tested   = map[string]bool{}
	)
	for _, line := range strings.Split(string(raw), "\n") {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] == "#":
			continue
		case strings.HasPrefix(fields[0], "["):
			relation = strings.Trim(fields[0], "[]")
			continue
		case fields[0] == "sender":
			columns = fields[1:]
			continue
		}
		if len(fields) != len(columns)+1 {
			t.Fatalf("%d cells in %q", len(fields)-1, line)
		}
		mine, theirs := "own", "own"
		switch relation {
		case "other":
			theirs = "other"
		case "none":
			mine = ""
		}
		p := senderIn(t, fields[0], mine)
		if p.Kind.String() != fields[0] {
			t.Errorf("kind %s is named %s", fields[0], p.Kind)
		}
		for i, want := range fields[1:] {
			a := parse(t, strings.ReplaceAll(targets[columns[i]], "WS", theirs))
			d := Decide(p, a, who)
			got := letters[d.Reason]
			if d.Allowed != (got == "+") {
				t.Errorf("%s: allowed %v with reason %q", fields[0], d.Allowed, d.Reason)
			}
			if got != want {
				t.Errorf("[%s] %s → %s: %s (%s), want %s", relation, fields[0], a, got, d.Message(p, a), want)
			}
			cells++
			tested[relation+" "+p.Kind.String()+" "+a.Prefix().String()] = true
		}
	}
	if want := 3 * 9 * 15; cells != want {
		t.Errorf("%d cells, want %d", cells, want)
	}
	for _, relation := range []string{"own", "other", "none"} {
		for _, k := range Kinds() {
			for _, p := range address.Prefixes() {
				if !tested[relation+" "+k.String()+" "+p.String()] {
					t.Errorf("no cell for %s, %s, %s", relation, k, p)
				}
			}
		}
	}
}
