package address

import (
	"strings"
	"unicode/utf8"
)

// The builders make an address of its parts, under the same rules as Parse. The
// error is a *ParseError whose Segment is the number of the refused part.

// Agent is ag::{workspace}::{implementation}::{specifier}.
func Agent(workspace, implementation, specifier string) (Address, error) {
	return build(PrefixAgent, workspace, implementation, specifier)
}

// UniqueTask is tu::{workspace}::{implementation}::{specifier}.
func UniqueTask(workspace, implementation, specifier string) (Address, error) {
	return build(PrefixUniqueTask, workspace, implementation, specifier)
}

// Task is ta::{workspace}::{implementation}::{id}, a server-assigned instance.
func Task(workspace, implementation, id string) (Address, error) {
	return build(PrefixTask, workspace, implementation, id)
}

// TaskBroadcast is tb::{workspace}::{implementation}.
func TaskBroadcast(workspace, implementation string) (Address, error) {
	return build(PrefixTaskBroadcast, workspace, implementation)
}

// User is us::{user}::{window}.
func User(user, window string) (Address, error) {
	return build(PrefixUser, user, window)
}

// UserWorkspace is uw::{user}::{workspace}.
func UserWorkspace(user, workspace string) (Address, error) {
	return build(PrefixUserWorkspace, user, workspace)
}

// AllAgents is ga::{workspace}.
func AllAgents(workspace string) (Address, error) { return build(PrefixAllAgents, workspace) }

// AllUsers is gu::{workspace}.
func AllUsers(workspace string) (Address, error) { return build(PrefixAllUsers, workspace) }

// Progress is pg::{workspace}.
func Progress(workspace string) (Address, error) { return build(PrefixProgress, workspace) }

// Event is event::{workspace}.
func Event(workspace string) (Address, error) { return build(PrefixEvent, workspace) }

// Metric is metric::{workspace}, a form that senders use; it is never stored.
func Metric(workspace string) (Address, error) { return build(PrefixMetric, workspace) }

// Service is sv::{implementation}::{specifier}.
func Service(implementation, specifier string) (Address, error) {
	return build(PrefixService, implementation, specifier)
}

// Bridge is br::{implementation}::{specifier}.
func Bridge(implementation, specifier string) (Address, error) {
	return build(PrefixBridge, implementation, specifier)
}

// MetricReceiver is metric::receiver0, the form in which metrics are stored.
func MetricReceiver() Address {
	return Address{text: metricSinkText, prefix: PrefixMetric, end1: uint16(len(metricSinkText))}
}

// MetricAny is metric::*, the sender's form for the metrics of its workspace.
func MetricAny() Address {
	return Address{text: metricAnyText, prefix: PrefixMetric, end1: uint16(len(metricAnyText))}
}

// build checks each part before joining, so that a part which contains "::"
// can never turn into two segments.
func build(p Prefix, parts ...string) (Address, error) {
	sh := &shapes[p]
	for i, part := range parts {
		r := checkSegment(part)
		if r == reasonNone && i == sh.workspace && ReservedWorkspace(part) {
			r = ReasonReservedWorkspace
		}
		if r != reasonNone {
			return Address{}, newParseError(r, i+1, part)
		}
	}
	text := sh.name + separator + strings.Join(parts, separator)
	if utf8.RuneCountInString(text) > MaxRunes {
		return Address{}, newParseError(ReasonTooLong, 0, text)
	}
	a := Address{text: text, prefix: p}
	end := len(sh.name) + len(separator) + len(parts[0])
	a.end1 = uint16(end)
	if len(parts) > 1 {
		a.end2 = uint16(end + len(separator) + len(parts[1]))
	}
	return a, nil
}
