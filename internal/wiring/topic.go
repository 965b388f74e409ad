package wiring

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aether-gateway/gateway/internal/address"
)

// Topic declares the settings of addresses: of one Address, or of those with a
// Prefix, in a Workspace, or both.
type Topic struct {
	Prefix    address.Prefix // 0: all
	Workspace string         // "": all
	Address   address.Address
	// Observers says that others than workers read the addresses as well.
	Observers bool
	Settings
	// Given are the options that were set, below the topic: "ack.mode".
	Given map[string]bool
}

// String names what the topic is declared for.
func (t *Topic) String() string {
	var parts []string
	if !t.Address.IsZero() {
		parts = append(parts, "address "+t.Address.String())
	}
	if t.Prefix != 0 {
		parts = append(parts, "prefix "+t.Prefix.String())
	}
	if t.Workspace != "" {
		parts = append(parts, "workspace "+t.Workspace)
	}
	return strings.Join(parts, ", ")
}

// prefixes are those of the addresses that the topic may be of.
func (t *Topic) prefixes() []address.Prefix {
	switch {
	case !t.Address.IsZero():
		return []address.Prefix{t.Address.Prefix()}
	case t.Prefix != 0:
		return []address.Prefix{t.Prefix}
	}
	var list []address.Prefix
	for _, p := range address.Prefixes() {
		if hasWorkspace(p) {
			list = append(list, p)
		}
	}
	return list
}

// hasWorkspace reports whether addresses of the prefix name a workspace under
// which their messages are found: those of metrics are stored without one.
func hasWorkspace(p address.Prefix) bool {
	return strings.Contains(p.Format(), "{workspace}") && p != address.PrefixMetric
}

// JudgeTopics reports what is wrong with declared topics: each by itself, two of
// the same, and buffers that take more than maxBytes together.
func JudgeTopics(topics []Topic, maxBytes int64) []Fault {
	var faults []Fault
	seen := map[string]int{}
	var sum int64
	for i := range topics {
		t := &topics[i]
		path := at(i)
		if t.String() == "" {
			continue // its name could not be read, which is told already
		}
		if j, twice := seen[t.String()]; twice {
			faults = append(faults, faultf(path, Twice, "%s is declared by %s already; accepted is one declaration of each", t, at(j)))
		} else {
			seen[t.String()] = i
		}
		own, bytes := t.judge(path)
		faults = append(faults, own...)
		sum += bytes
	}
	if sum > maxBytes && len(faults) == 0 {
		faults = append(faults, faultf("", TooMuch, "%d topics declare buffers of %d bytes in all; accepted are at most the %d bytes of runtime.max_bytes: lower max_bytes of some, or raise runtime.max_bytes",
			len(topics), sum, maxBytes))
	}
	return faults
}

func at(i int) string { return fmt.Sprintf("[%d]", i) }

// judge reports what is wrong with one topic, and the bytes that its buffers may
// take: those of one address for each prefix that it is of.
func (t *Topic) judge(path string) (faults []Fault, bytes int64) {
	if t.Workspace != "" && t.Prefix != 0 && !hasWorkspace(t.Prefix) {
		return []Fault{faultf(path+".workspace", NotCapable, "%q cannot be given with prefix %s, whose messages are not told apart by workspace; accepted is the prefix alone", t.Workspace, t.Prefix)}, 0
	}
	prefixes := t.prefixes()
	modes := map[Mode]bool{}
	for _, p := range prefixes {
		mode := ModeOf(p, t.Observers)
		modes[mode] = true
		if mode == Broadcast || mode == Mixed {
			bytes += t.Bytes
		}
		if mode == Balanced || mode == Mixed {
			bytes += t.Bytes
		}
	}
	worst := Exclusive
	for _, mode := range []Mode{Broadcast, Balanced, Mixed} {
		if modes[mode] {
			worst = mode
		}
	}
	if modes[Exclusive] {
		worst = Exclusive // of several, the one that can least
	}
	faults = t.Judge(path, worst)
	if t.Given["capacity"] { // one number for both
		faults = slices.DeleteFunc(faults, func(f Fault) bool { return f.Path == path+".capacity.ring" })
		for i := range faults {
			if faults[i].Path == path+".capacity.queue" {
				faults[i].Path = path + ".capacity"
			}
		}
	}
	capable := func(field string, ok bool, why, accepted string) {
		if t.Given[field] && !ok {
			faults = append(faults, faultf(path+"."+field, NotCapable, "has no effect for %s, %s; accepted are %s", t, why, accepted))
		}
	}
	const (
		logged   = "which are read from the log: nothing of them is ever dropped"
		rings    = "addresses with prefix ga, gu, uw, pg or metric, and tb with observers"
		queues   = "addresses with prefix tb"
		noReader = "whose only readers are those whom they are for"
	)
	ring, queue := modes[Broadcast] || modes[Mixed], modes[Balanced] || modes[Mixed]
	capable("on_lag", ring, logged, rings)
	capable("capacity.ring", ring, logged, rings)
	capable("queue_on_full", queue, "which have no queue of workers", queues)
	capable("capacity.queue", queue, "which have no queue of workers", queues)
	capable("capacity", ring || queue, logged, rings+" or tb")
	capable("max_bytes", ring || queue, logged, rings+" or tb")
	capable("observers", queue || !t.Observers, noReader, queues)
	return faults, bytes
}

// Table answers what is declared of an address. It is immutable and safe for
// concurrent use; nil and the zero value declare nothing.
type Table struct {
	addresses  map[string]*Topic
	prefixed   map[place]*Topic
	prefixes   map[address.Prefix]*Topic
	workspaces map[string]*Topic
}

type place struct {
	prefix    address.Prefix
	workspace string
}

// NewTable makes a table of topics without faults.
func NewTable(topics []Topic) *Table {
	t := &Table{
		addresses: map[string]*Topic{}, prefixed: map[place]*Topic{},
		prefixes: map[address.Prefix]*Topic{}, workspaces: map[string]*Topic{},
	}
	for i := range topics {
		switch d := &topics[i]; {
		case !d.Address.IsZero():
			t.addresses[d.Address.String()] = d
		case d.Prefix != 0 && d.Workspace != "":
			t.prefixed[place{d.Prefix, d.Workspace}] = d
		case d.Prefix != 0:
			t.prefixes[d.Prefix] = d
		default:
			t.workspaces[d.Workspace] = d
		}
	}
	return t
}

// Of returns what is declared of an address: by its own name, else for its
// prefix in its workspace, else for its prefix, else for its workspace. It is nil
// if nothing is: then the bounds of the runtime hold.
func (t *Table) Of(a address.Address) *Settings {
	if t == nil || t.addresses == nil {
		return nil
	}
	d := t.addresses[a.String()]
	if ws := a.Workspace(); d == nil && ws != "" && hasWorkspace(a.Prefix()) {
		d = t.prefixed[place{a.Prefix(), ws}]
	}
	if d == nil {
		d = t.prefixes[a.Prefix()]
	}
	if d == nil && hasWorkspace(a.Prefix()) {
		d = t.workspaces[a.Workspace()]
	}
	if d == nil {
		return nil
	}
	return &d.Settings
}
