package metrics

import (
	"math"

	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Counts are what the parts of the gateway have counted since it started. They
// count by themselves, in plain atomics, and are read when Prometheus asks.
type Counts struct {
	Ready bool
	// Refusals are the requests of clients that were refused, by code; the keys
	// are those of package wireerr.
	Refusals map[string]uint64
	// ActionsDone and ActionsFailed count what operators did, or tried to.
	ActionsDone, ActionsFailed uint64
	// AuditEvents were taken for the audit, AuditOverflowed found no record of
	// their own, AuditFailures are writes that failed.
	AuditEvents, AuditOverflowed, AuditFailures uint64

	Sessions int // connected now
	// Up says of each dependency in use whether it works; its keys are those
	// of [Dependencies].
	Up map[string]bool
	// Unwritable and Unreadable are partitions of the log in trouble.
	Unwritable, Unreadable int

	Connects, Refused, Ended, SlowReaders  uint64 // sessions
	TurnedAway, Slowed, Crowded            uint64 // connections
	Resumed, TakenOver, Superseded, Fenced uint64 // sessions, by what became of their leases
	// Sessions, by what became of their credentials.
	Reauthenticated, ReauthenticationsRefused, CredentialsExpired, CredentialsRevoked uint64

	// RateLimited are sends that were refused by rate, by the scope of the
	// limit in the order of [RateScopes]; nil if none is limited.
	RateLimited []uint64

	Stored, Duplicates, RefusedSends, Failed uint64 // sends, by outcome
	Live, Shared                             uint64 // deliveries, by the way they took
	Redelivered, Expired, GivenUp            uint64 // deliveries, by what became of them
	CatchUps                                 uint64
	PositionsCommitted, CommitFailures       uint64
	Notes, NoteFailures, DeadLetters         uint64
	Forwarded, ForwardsRefused               uint64 // what routes take, by outcome
	DamagedEntries, DamagedEnvelopes         uint64

	// RouteEvicted and RouteOversize are messages that fair queues dropped, or had
	// no room for at all, by the class of their sender in the order of
	// [SenderClasses].
	RouteEvicted, RouteOversize                          []uint64
	RouteStarved                                         uint64
	RoutePrincipals, RouteBytes, RingMessages, RingBytes int64 // now
	RingLagged                                           uint64

	// Tasks, Starts and Keys are what became of tasks, of starts, and of operations
	// on keys and checkpoints, in the order of [TaskEvents], [StartEvents] and
	// [KeyOutcomes]; nil where the gateway has none.
	Tasks, Starts, Keys []uint64
}

// metric is a family with what to read for each value of its label, or for the
// one series of a family without a label.
type metric struct {
	Family
	read []func(*Counts) float64
}

// table is the one list of metrics.
var table = []metric{
	{
		Family{Name: "aether_ready", Type: "gauge", Help: "1 if the gateway is ready, else 0."},
		read(func(c *Counts) bool { return c.Ready }),
	},
	{
		Family{
			Name: "aether_dependency_up", Type: "gauge", Help: "1 if what the gateway stands on works, else 0; only what it uses has a series.",
			Label: "dependency", Values: Dependencies,
		},
		dependencies(),
	},
	{
		Family{
			Name: "aether_partitions_down", Type: "gauge", Help: "Partitions of the log that cannot be written, or read, now.",
			Label: "what", Values: []string{"write", "read"},
		},
		[]func(*Counts) float64{
			func(c *Counts) float64 { return float64(c.Unwritable) }, func(c *Counts) float64 { return float64(c.Unreadable) },
		},
	},
	{
		Family{Name: "aether_sessions", Type: "gauge", Help: "Sessions that are connected now."},
		[]func(*Counts) float64{func(c *Counts) float64 { return float64(c.Sessions) }},
	},
	{
		Family{
			Name: "aether_connects_total", Type: "counter", Help: "Attempts to connect, by what became of them.",
			Label: "outcome", Values: []string{"accepted", "refused"},
		},
		numbers(func(c *Counts) uint64 { return c.Connects }, func(c *Counts) uint64 { return c.Refused }),
	},
	{
		Family{Name: "aether_connects_turned_away_total", Type: "counter", Help: "Connections beyond admission.rate."},
		numbers(func(c *Counts) uint64 { return c.TurnedAway }),
	},
	{
		Family{Name: "aether_connects_slowed_total", Type: "counter", Help: "Connections that were told to come back later because credentials from their address fail again and again."},
		numbers(func(c *Counts) uint64 { return c.Slowed }),
	},
	{
		Family{Name: "aether_connects_crowded_total", Type: "counter", Help: "Connections of workspaces and credentials that had too many sessions."},
		numbers(func(c *Counts) uint64 { return c.Crowded }),
	},
	{
		Family{
			Name: "aether_rate_limited_total", Type: "counter", Help: "Sends that were refused by rate, by whose limit it was.",
			Label: "scope", Values: RateScopes,
		},
		each(RateScopes, func(c *Counts) []uint64 { return c.RateLimited }),
	},
	{
		Family{
			Name: "aether_leases_total", Type: "counter",
			Help:  "Leases that moved: sessions that went on where another was, that handed over to one that goes on, that were taken over without being asked, and that ended because the gateway could not renew.",
			Label: "event", Values: []string{"resumed", "handed_over", "superseded", "fenced"},
		},
		numbers(
			func(c *Counts) uint64 { return c.Resumed }, func(c *Counts) uint64 { return c.TakenOver },
			func(c *Counts) uint64 { return c.Superseded }, func(c *Counts) uint64 { return c.Fenced },
		),
	},
	{
		Family{
			Name: "aether_reauthentications_total", Type: "counter", Help: "New credentials for sessions that go on, by what became of them.",
			Label: "outcome", Values: []string{"accepted", "refused"},
		},
		numbers(func(c *Counts) uint64 { return c.Reauthenticated }, func(c *Counts) uint64 { return c.ReauthenticationsRefused }),
	},
	{
		Family{
			Name: "aether_sessions_put_out_total", Type: "counter", Help: "Sessions that ended because their credential did.",
			Label: "reason", Values: []string{"expired", "revoked"},
		},
		numbers(func(c *Counts) uint64 { return c.CredentialsExpired }, func(c *Counts) uint64 { return c.CredentialsRevoked }),
	},
	{
		Family{Name: "aether_session_ends_total", Type: "counter", Help: "Sessions that ended."},
		numbers(func(c *Counts) uint64 { return c.Ended }),
	},
	{
		Family{Name: "aether_slow_readers_total", Type: "counter", Help: "Sessions that were ended because their client read nothing for session.write_timeout."},
		numbers(func(c *Counts) uint64 { return c.SlowReaders }),
	},
	{
		Family{
			Name: "aether_sends_total", Type: "counter", Help: "Messages that clients sent, by what became of them.",
			Label: "outcome", Values: []string{"stored", "duplicate", "refused", "failed"},
		},
		numbers(
			func(c *Counts) uint64 { return c.Stored }, func(c *Counts) uint64 { return c.Duplicates },
			func(c *Counts) uint64 { return c.RefusedSends }, func(c *Counts) uint64 { return c.Failed },
		),
	},
	{
		Family{
			Name: "aether_refusals_total", Type: "counter", Help: "Requests of clients that were refused, sends among them, by the code that they were told.",
			Label: "code", Values: codes(),
		},
		byCode(),
	},
	{
		Family{
			Name: "aether_operator_actions_total", Type: "counter", Help: "What operators did, or tried to, by what became of it.",
			Label: "outcome", Values: []string{"ok", "failed"},
		},
		numbers(func(c *Counts) uint64 { return c.ActionsDone }, func(c *Counts) uint64 { return c.ActionsFailed }),
	},
	{
		Family{
			Name: "aether_audit_events_total", Type: "counter", Help: "Events for the audit: all, and those that were counted without a record of their own, because there were too many or the store was away.",
			Label: "what", Values: []string{"all", "overflowed"},
		},
		numbers(func(c *Counts) uint64 { return c.AuditEvents }, func(c *Counts) uint64 { return c.AuditOverflowed }),
	},
	{
		Family{Name: "aether_audit_write_failures_total", Type: "counter", Help: "Batches of the audit that the store did not take; they are tried again."},
		numbers(func(c *Counts) uint64 { return c.AuditFailures }),
	},
	{
		Family{
			Name: "aether_handovers_total", Type: "counter", Help: "Messages handed to sessions past the log: live, before they were stored, and of shared addresses.",
			Label: "path", Values: []string{"live", "shared"},
		},
		numbers(func(c *Counts) uint64 { return c.Live }, func(c *Counts) uint64 { return c.Shared }),
	},
	{
		Family{
			Name: "aether_deliveries_total", Type: "counter", Help: "Deliveries that did not end with a first acknowledgement.",
			Label: "outcome", Values: []string{"redelivered", "expired", "given_up"},
		},
		numbers(
			func(c *Counts) uint64 { return c.Redelivered }, func(c *Counts) uint64 { return c.Expired },
			func(c *Counts) uint64 { return c.GivenUp },
		),
	},
	{
		Family{Name: "aether_catch_ups_total", Type: "counter", Help: "Passes over the log for sessions that were behind."},
		numbers(func(c *Counts) uint64 { return c.CatchUps }),
	},
	{
		Family{Name: "aether_positions_committed_total", Type: "counter", Help: "Positions written to the store."},
		numbers(func(c *Counts) uint64 { return c.PositionsCommitted }),
	},
	{
		Family{Name: "aether_position_commit_failures_total", Type: "counter", Help: "Batches of positions that the store did not take."},
		numbers(func(c *Counts) uint64 { return c.CommitFailures }),
	},
	{
		Family{Name: "aether_notes_total", Type: "counter", Help: "Notes of absence written to the store before somebody absent was sent to."},
		numbers(func(c *Counts) uint64 { return c.Notes }),
	},
	{
		Family{Name: "aether_note_failures_total", Type: "counter", Help: "Batches of notes that the store did not take; the sends that waited for them were refused."},
		numbers(func(c *Counts) uint64 { return c.NoteFailures }),
	},
	{
		Family{
			Name: "aether_forwards_total", Type: "counter", Help: "Messages that routes take: stored anew, or refused by permissions, limits or the number of hops.",
			Label: "outcome", Values: []string{"stored", "refused"},
		},
		numbers(func(c *Counts) uint64 { return c.Forwarded }, func(c *Counts) uint64 { return c.ForwardsRefused }),
	},
	{
		Family{Name: "aether_dead_letters_total", Type: "counter", Help: "Messages that were given up and put into the dead-letter log."},
		numbers(func(c *Counts) uint64 { return c.DeadLetters }),
	},
	{
		Family{
			Name: "aether_tasks_total", Type: "counter", Help: "What became of tasks, starts among them, by changes that this gateway made.",
			Label: "event", Values: TaskEvents,
		},
		each(TaskEvents, func(c *Counts) []uint64 { return c.Tasks }),
	},
	{
		Family{
			Name: "aether_starts_total", Type: "counter",
			Help: "Starts of agents and tasks that were not there: mail that was to start somebody, starts that were made of it or put off by a budget, " +
				"what was given to orchestrators, workers that came, attempts that came to nothing and were tried anew, and starts that failed.",
			Label: "event", Values: StartEvents,
		},
		each(StartEvents, func(c *Counts) []uint64 { return c.Starts }),
	},
	{
		Family{
			Name: "aether_kv_operations_total", Type: "counter",
			Help:  "Operations on keys and checkpoints: those that were done, by their kind; those that were refused; those that the store did not do.",
			Label: "outcome", Values: KeyOutcomes,
		},
		each(KeyOutcomes, func(c *Counts) []uint64 { return c.Keys }),
	},
	{
		Family{
			Name: "aether_route_evicted_total", Type: "counter", Help: "Messages that fair queues (metrics, fair subscriptions) dropped because their reader was too slow, by whose they were.",
			Label: "sender", Values: SenderClasses,
		},
		each(SenderClasses, func(c *Counts) []uint64 { return c.RouteEvicted }),
	},
	{
		Family{
			Name: "aether_route_oversize_total", Type: "counter", Help: "Messages that are larger than a fair queue may be, by whose they were.",
			Label: "sender", Values: SenderClasses,
		},
		each(SenderClasses, func(c *Counts) []uint64 { return c.RouteOversize }),
	},
	{
		Family{Name: "aether_route_starved_total", Type: "counter", Help: "Turns in fair queues that let nothing out, because the sender's next message was larger than its share so far."},
		numbers(func(c *Counts) uint64 { return c.RouteStarved }),
	},
	{
		Family{Name: "aether_route_senders", Type: "gauge", Help: "Senders of whom something waits in fair queues, counted in each queue."},
		gauge(func(c *Counts) int64 { return c.RoutePrincipals }),
	},
	{
		Family{Name: "aether_route_bytes", Type: "gauge", Help: "Bytes that wait in fair queues, with 128 for each message."},
		gauge(func(c *Counts) int64 { return c.RouteBytes }),
	},
	{
		Family{Name: "aether_ring_lagged_total", Type: "counter", Help: "Readers of shared addresses that fell behind what the address keeps."},
		numbers(func(c *Counts) uint64 { return c.RingLagged }),
	},
	{
		Family{Name: "aether_ring_messages", Type: "gauge", Help: "Messages of shared addresses that somebody has yet to read; each is there once."},
		gauge(func(c *Counts) int64 { return c.RingMessages }),
	},
	{
		Family{Name: "aether_ring_bytes", Type: "gauge", Help: "The same in bytes."},
		gauge(func(c *Counts) int64 { return c.RingBytes }),
	},
	{
		Family{
			Name: "aether_damaged_total", Type: "counter", Help: "What could not be read in the log.",
			Label: "what", Values: []string{"entry", "envelope"},
		},
		numbers(func(c *Counts) uint64 { return c.DamagedEntries }, func(c *Counts) uint64 { return c.DamagedEnvelopes }),
	},
}

// SenderClasses are the kinds of senders that fair queues tell apart.
var SenderClasses = []string{"system", "user", "agent"}

// RateScopes are those who have rates.
var RateScopes = []string{"identity", "credential", "workspace"}

// The events of tasks and starts, and what becomes of operations on keys.
var (
	TaskEvents  = []string{"created", "assigned", "completed", "failed", "cancelled", "rejected", "retried"}
	StartEvents = []string{"triggered", "started", "over_budget", "assigned", "arrived", "retried", "failed"}
	KeyOutcomes = []string{"read", "listed", "changed", "purged", "checkpoint", "refused", "failed"}
)

// each reads the number of each value of a label.
func each(values []string, numbers func(*Counts) []uint64) []func(*Counts) float64 {
	all := make([]func(*Counts) float64, len(values))
	for i := range values {
		all[i] = func(c *Counts) float64 {
			if list := numbers(c); i < len(list) {
				return float64(list[i])
			}
			return 0
		}
	}
	return all
}

// codes are all codes of refusals.
func codes() (list []string) {
	for _, e := range wireerr.Table() {
		list = append(list, string(e.Code))
	}
	return list
}

func byCode() []func(*Counts) float64 {
	all := make([]func(*Counts) float64, 0, len(codes()))
	for _, code := range codes() {
		all = append(all, func(c *Counts) float64 { return float64(c.Refusals[code]) })
	}
	return all
}

// Dependencies are all that a gateway may stand on.
var Dependencies = []string{"log", "postgres", "redis", "disk", "jwks"}

// dependencies reads each one; NaN is no series.
func dependencies() []func(*Counts) float64 {
	all := make([]func(*Counts) float64, len(Dependencies))
	for i, name := range Dependencies {
		all[i] = func(c *Counts) float64 {
			switch up, used := c.Up[name]; {
			case !used:
				return math.NaN()
			case up:
				return 1
			}
			return 0
		}
	}
	return all
}

func gauge(field func(*Counts) int64) []func(*Counts) float64 {
	return []func(*Counts) float64{func(c *Counts) float64 { return float64(field(c)) }}
}

func numbers(fields ...func(*Counts) uint64) []func(*Counts) float64 {
	all := make([]func(*Counts) float64, len(fields))
	for i, field := range fields {
		all[i] = func(c *Counts) float64 { return float64(field(c)) }
	}
	return all
}

func read(field func(*Counts) bool) []func(*Counts) float64 {
	return []func(*Counts) float64{func(c *Counts) float64 {
		if field(c) {
			return 1
		}
		return 0
	}}
}
