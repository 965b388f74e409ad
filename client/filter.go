package client

import (
	"context"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// CodeInvalidFilter: a [Filter] does not follow the grammar, or there are too many
// of them; none of the list holds.
const CodeInvalidFilter Code = "ERR_INVALID_FILTER"

// Filter says which messages of one kind of address this principal wants, by
// their subjects ([WithSubject]). The gateway leaves out the others: they are not
// sent, and not counted in a [Gap]. A kind without a Filter is not narrowed.
type Filter struct {
	// Kind is ga, gu, uw, pg, event or metric; several entries of one kind add up.
	// tb asks for copies of what workers compete for, which needs a rule.
	Kind string
	// Subjects are at most 32 patterns: segments separated by dots, where "*" is
	// exactly one segment and a final "#" any number of them. None, and "", takes
	// everything.
	Subjects []string
	// Fair asks for turns between senders, so that one that floods does not keep
	// the others back. A gateway that has none refuses it.
	Fair bool
}

func (f Filter) proto() *aetherv1.TopicFilter {
	return &aetherv1.TopicFilter{TopicPrefix: f.Kind, Subjects: f.Subjects, Fair: f.Fair}
}

func protoFilters(list []Filter) []*aetherv1.TopicFilter {
	var out []*aetherv1.TopicFilter
	for _, f := range list {
		out = append(out, f.proto())
	}
	return out
}

func cloneFilters(list []Filter) []Filter {
	list = slices.Clone(list)
	for i := range list {
		list[i].Subjects = slices.Clone(list[i].Subjects)
	}
	return list
}

// checkFilters refuses what would break the stream; the grammar is the gateway's.
func checkFilters(list []Filter) *Error {
	for _, f := range list {
		if !utf8.ValidString(f.Kind) || !utf8.ValidString(strings.Join(f.Subjects, "")) {
			return refused(CodeInvalidFilter, "a filter is not valid UTF-8")
		}
	}
	return nil
}

// SetFilters replaces all filters, those of [Options.Filters] among them; none
// takes everything. When it returns nil the gateway applies them, also in later
// sessions of this client; what it had handed over before may still come. On an
// error all is as it was: the gateway's refusal (CodeInvalidFilter,
// CodePermissionDenied for tb), or, if its answer did not come, what is known of
// the connection; then they may hold until the session ends. Safe for concurrent
// use; one after the other is served.
func (c *Client) SetFilters(ctx context.Context, filters ...Filter) error {
	if err := checkFilters(filters); err != nil {
		return err
	}
	filters = cloneFilters(filters)
	select {
	case c.filters.turn <- struct{}{}:
		defer func() { <-c.filters.turn }()
	case <-ctx.Done():
		return gaveUp("the filters were not changed", ctx.Err())
	}
	l, err := c.connected()
	if err != nil {
		return err
	}
	if !l.session.Extended {
		return noFilters()
	}
	c.filters.ask(l)
	defer c.filters.ask(nil)
	err = l.sendFrame(ctx, &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_UpdateFilters{
		UpdateFilters: &aetherv1.DeliveryOptions{Filters: protoFilters(filters)},
	}})
	if err != nil {
		return err
	}
	// An update has no answer unless it is refused. The answer to what is asked
	// after it comes behind the refusal.
	_, err = c.call(ctx, func(id string) *aetherv1.UpstreamMessage {
		return &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_ConnectionStatusRequest{
			ConnectionStatusRequest: &aetherv1.ConnectionStatusRequest{RequestId: id, Principal: &aetherv1.PrincipalRef{PrincipalId: c.opts.Identity.String()}},
		}}
	}, nil)
	if refusal := c.filters.refusal(); refusal != nil {
		return refusal
	}
	if err != nil {
		return err
	}
	if now, err := c.connected(); err != nil || now != l {
		return &Error{Code: CodeUnknownOutcome, Message: "the session ended while its filters were changed", Retryable: true}
	}
	c.filters.set(filters)
	return nil
}

func noFilters() *Error {
	return &Error{Code: CodeInvalidFilter, Message: "this gateway does not know filters", terminal: true}
}

// filterList is what a client has asked for. Safe for concurrent use.
type filterList struct {
	turn chan struct{} // capacity 1: one change at a time

	mu      sync.Mutex
	list    []Filter
	asking  *link // whose refusal is waited for
	refused *Error
}

func newFilterList(list []Filter) *filterList {
	return &filterList{turn: make(chan struct{}, 1), list: cloneFilters(list)}
}

func (f *filterList) proto() []*aetherv1.TopicFilter {
	f.mu.Lock()
	defer f.mu.Unlock()
	return protoFilters(f.list)
}

func (f *filterList) set(list []Filter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = list
}

func (f *filterList) ask(l *link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asking, f.refused = l, nil
}

func (f *filterList) refusal() *Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused
}

// take takes the refusal of a change, which has no request id.
func (f *filterList) take(l *link, e *Error) bool {
	if e.Details["frame"] != "update_filters" {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asking != l {
		return false
	}
	f.refused = e
	return true
}
