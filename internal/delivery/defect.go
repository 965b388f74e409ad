//go:build !chaosdefect

package delivery

import "github.com/aether-gateway/gateway/internal/envelope"

// tamper is where builds for the proof of the fault harness spoil deliveries
// (build tag chaosdefect). In all others it is nothing.
func (*Mailbox) tamper(*Inbox, *envelope.View, record) (id uint64, done bool) { return 0, false }
