package main

import (
	"os"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
)

// everybody answers that each user is everywhere.
type everybody struct{}

func (everybody) InWorkspace(string, string) bool     { return true }
func (everybody) InAny(string, acl.WorkspaceSet) bool { return true }
func (everybody) Barred(string, string) bool          { return false }

// example is an address of a format.
func example(t *testing.T, p address.Prefix) address.Address {
	t.Helper()
	a, err := address.Parse(strings.NewReplacer("{", "", "}", "").Replace(p.Format()))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The page of addresses says what the gateway does.
func TestAddressesPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/addresses.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{} // cells by the first one
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(strings.Trim(line, "| \n"), " | "); len(cells) > 1 {
			rows[cells[0]] = cells[1:]
		}
	}
	tracked := map[address.Mode]string{
		address.Exclusive: "until it is acknowledged", address.Workers: "while workers are connected, until one has acknowledged it; what is open is lost with the gateway, unless gateways share a Redis", address.Shared: "no",
	}
	for _, p := range address.Prefixes() {
		row := rows["`"+p.String()+"`"]
		if len(row) != 3 || row[0] != "`"+p.Format()+"`" || row[2] != tracked[p.Mode()] {
			t.Errorf("%s: the page has %q", p, row)
		}
	}
	names := map[acl.Kind]string{acl.UniqueTask: "unique task", acl.Task: "worker", acl.WorkflowEngine: "workflow engine", acl.MetricsBridge: "metrics bridge"}
	header := rows["sender"]
	for _, kind := range acl.Kinds() {
		name := first(names[kind], kind.String())
		row := rows[name]
		if len(row) != len(address.Prefixes()) || len(header) != len(row) {
			t.Errorf("%s: the page has %q", name, row)
			continue
		}
		sender := acl.Principal{Kind: kind, Workspaces: acl.All()}
		if kind.WorkspaceScoped() {
			sender.Workspace = "workspace"
		}
		for i, p := range address.Prefixes() {
			want := "–"
			if acl.Decide(&sender, example(t, p), everybody{}).Allowed {
				want = "yes"
			}
			if header[i] != "`"+p.String()+"`" || row[i] != want {
				t.Errorf("%s to %s is %q, the page says %q to %s", name, p, want, row[i], header[i])
			}
		}
	}
}
