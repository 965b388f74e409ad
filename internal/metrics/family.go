package metrics

import (
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
)

const (
	// OK is the reason of what succeeded.
	OK = "ok"
	// Other is what a value from outside a label's set is counted as.
	Other = "other"
	// Invalid is the prefix of an address that did not parse.
	Invalid = "invalid"
)

// Family describes one metric.
type Family struct {
	Name, Type, Help string
	Labels           []Label
}

// Label is a label with the only values that it takes.
type Label struct {
	Name   string
	Values []string
}

func (f Family) labelNames() []string {
	names := make([]string, len(f.Labels))
	for i, l := range f.Labels {
		names[i] = l.Name
	}
	return names
}

var (
	kindLabel    = Label{"kind", kindValues()}
	prefixLabels = Label{"prefix", prefixValues()}
	codeValues   = []string{
		OK, "canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists", "permission_denied",
		"resource_exhausted", "failed_precondition", "aborted", "unimplemented", "internal", "unavailable", "unauthenticated", Other,
	}
	sendValues = []string{
		"stored", "duplicate",
		"ERR_INVALID_TOPIC", "ERR_PERMISSION_DENIED", "ERR_PAYLOAD_TOO_LARGE", "ERR_RATE_LIMITED", "ERR_WORKSPACE_RATE_LIMITED",
		"ERR_QUOTA_EXCEEDED", "ERR_PUBLISH_FAILED", "ERR_UNAVAILABLE", "ERR_INVALID_ARGUMENT", "ERR_METRIC_INVALID", "ERR_METRIC_EMPTY",
		"ERR_METRIC_INVALID_ENTRY", "ERR_UNAUTHENTICATED", "ERR_GRANT_INVALID", "ERR_INTERNAL", Other,
	}
	gapValues = []string{"retention", "recreated", "lagged", "damaged", Other}
)

var (
	famSessions = Family{
		"aether_sessions", "gauge", "Sessions that are connected now.",
		[]Label{kindLabel},
	}
	famConnects = Family{
		"aether_connects_total", "counter", "Attempts to connect, by what they ended with.",
		[]Label{kindLabel, {"reason", codeValues}},
	}
	famEnds = Family{
		"aether_session_ends_total", "counter", "Sessions that ended, by their status.",
		[]Label{kindLabel, {"reason", codeValues}},
	}
	famSends = Family{
		"aether_sends_total", "counter", "Messages that clients sent, by prefix of the address and what became of them.",
		[]Label{prefixLabels, {"reason", sendValues}},
	}
	famStored = Family{
		"aether_store_seconds", "histogram", "Time from accepting a message to the log's confirm.", nil,
	}
	famDeliveries = Family{
		"aether_deliveries_total", "counter", "Messages handed to sessions, by the way they came.",
		[]Label{prefixLabels, {"path", []string{"live", "tail", "catch_up", Other}}},
	}
	famAcks = Family{
		"aether_acks_total", "counter", "What became of deliveries.",
		[]Label{{"outcome", []string{"ack", "nack", "redelivered", "given_up", "auto", Other}}},
	}
	famGaps = Family{
		"aether_gaps_total", "counter", "Notices to clients that messages are missing.",
		[]Label{{"reason", gapValues}},
	}
	famLost = Family{
		"aether_gap_messages_total", "counter", "Messages that those notices reported, where the number is known.",
		[]Label{{"reason", gapValues}},
	}
	famCommits = Family{
		"aether_position_commits_total", "counter", "Written batches of positions.",
		[]Label{{"outcome", []string{OK, "failed", Other}}},
	}
	famTails = Family{
		"aether_tails", "gauge", "Partitions that are read, and that are not.",
		[]Label{{"state", []string{"up", "down", Other}}},
	}
	famReopens = Family{
		"aether_log_reopens_total", "counter", "Connections to the log that were opened anew.",
		[]Label{{"what", []string{"producer", "consumer", Other}}},
	}
	famReady = Family{"aether_ready", "gauge", "1 if the gateway is ready, else 0.", nil}
	famBuild = Family{
		"aether_build_info", "gauge", "Always 1; the label names the program's version.",
		[]Label{{"version", nil}},
	}
)

// Families lists all metrics but those of Go and the process.
func Families() []Family {
	return []Family{
		famSessions, famConnects, famEnds, famSends, famStored, famDeliveries, famAcks, famGaps, famLost, famCommits, famTails, famReopens,
		famReady, famBuild,
	}
}

func kindValues() []string {
	values := []string{acl.KindUnknown.String()}
	for _, k := range acl.Kinds() {
		values = append(values, k.String())
	}
	return append(values, Other)
}

func prefixValues() []string {
	values := make([]string, 0, 16)
	for _, p := range address.Prefixes() {
		values = append(values, p.String())
	}
	return append(values, Invalid, Other)
}
