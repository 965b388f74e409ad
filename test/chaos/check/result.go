package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Result is what a history comes to.
type Result struct {
	// Rows are counts by class of address: "exclusive" or the class of its
	// receiver, "workers", "shared", "other".
	Rows       map[string]*Row
	Violations []Violation // in the order of their events
	Faults     map[string]int
	Gaps       int // losses that receivers were told of
	Tasks      TaskCounts
	// LongestPause is the longest time without a receipt while there was a send
	// to answer.
	LongestPause time.Duration

	waitingSince time.Duration
	waiting      bool
}

// Row are counts of one class of addresses. Sent, Stored, Refused and Unknown
// count messages, the latter three by what is known in the end; the others
// count events.
type Row struct {
	Sent, Stored, Refused, Unknown int
	Delivered                      int // frames, repeats included
	UnknownDelivered               int // of Unknown: came nevertheless
	DuplicateReceipts              int
	Repeats                        int // deliveries after the first
	UnflaggedRepeats               int // of those: not called redelivered
	RepeatsOfRepeatedSends         int // of those: sent more than once
	Excused                        int // for workers, with no worker, or no gateway that remembers

	Lost, Duplicated, Reordered, Foreign, Unflagged, Stale, Positions int

	LongestWait time.Duration // from receipt to first delivery
}

// answer measures the pauses between receipts.
func (r *Result) answer(e Event) {
	if r.waiting {
		r.LongestPause = max(r.LongestPause, e.At-r.waitingSince)
	}
	if e.Kind == Stored || !r.waiting {
		r.waitingSince = e.At
	}
	r.waiting = true
}

// Table is the result as text, one row per class.
func (r *Result) Table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := "guarantee\tsent\tstored\trefused\tunknown\tdelivered\trepeats\tunflagged\tlost\tduplicated\treordered\tforeign\tstale\tlongest wait\t\n"
	fmt.Fprint(w, head) //nolint:errcheck // a strings.Builder takes all
	for _, class := range slices.Sorted(maps.Keys(r.Rows)) {
		c := r.Rows[class]
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1fs\t\n", //nolint:errcheck // as above
			class, c.Sent, c.Stored, c.Refused, c.Unknown, c.Delivered, c.Repeats, c.UnflaggedRepeats,
			c.Lost, c.Duplicated+c.Unflagged, c.Reordered+c.Positions, c.Foreign, c.Stale, c.LongestWait.Seconds())
	}
	w.Flush() //nolint:errcheck // as above
	var excused, retried, late int
	for _, c := range r.Rows {
		excused, retried, late = excused+c.Excused, retried+c.RepeatsOfRepeatedSends, late+c.UnknownDelivered
	}
	fmt.Fprintf(&b, "unknown that came: %d; repeats of sends that were made more than once: %d; gaps told: %d; for workers, excused: %d\n",
		late, retried, r.Gaps, excused)
	fmt.Fprintf(&b, "longest time without a receipt: %.1fs\n", r.LongestPause.Seconds())
	b.WriteString(r.Tasks.String())
	var faults []string
	for _, kind := range slices.Sorted(maps.Keys(r.Faults)) {
		faults = append(faults, fmt.Sprintf("%s %d", kind, r.Faults[kind]))
	}
	fmt.Fprintf(&b, "faults: %s\n", strings.Join(faults, ", "))
	return b.String()
}

// Around returns the events that a violation should be read with: all of its
// message, and the sessions of its receiver, faults and gateways in the half
// minute around it.
func Around(h History, v Violation) []Event {
	const near = 30 * time.Second
	at := time.Duration(0)
	if v.Event < len(h.Events) {
		at = h.Events[v.Event].At
	}
	var list []Event
	for i, e := range h.Events {
		close := e.At >= at-near && e.At <= at+near
		switch {
		case i == v.Event, v.Message.Seq != 0 && e.Message() == v.Message, v.Task != "" && e.Task == v.Task:
		case !close:
			continue
		case e.Kind == Fault || e.Kind == Healed || e.Kind == Up || e.Kind == Down:
		case (e.Kind == Joined || e.Kind == Left || e.Kind == Gap) && (e.Who == v.Who || e.Who == v.Message.Sender):
		case e.Sender == v.Message.Sender && e.To == v.Message.To && e.Seq >= v.Message.Seq-1 && e.Seq <= v.Message.Seq+1:
		default:
			continue
		}
		list = append(list, e)
	}
	return list
}
