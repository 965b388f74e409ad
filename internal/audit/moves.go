package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

// What operators do to mail, as actions of the kind [Operate] whose target is the
// address. Their details say where, so that it can be found again what became of
// a message.
const (
	MailSkip   = "mail skip"
	MailPurge  = "mail purge"
	MailReplay = "mail replay"
)

const (
	passedOver   = "positions %d to %d were passed over"
	replayedFrom = "from position %d on it comes again"
)

// PassedOver is the detail of [MailSkip] and [MailPurge], ReplayedFrom that of
// [MailReplay].
func PassedOver(first, last uint64) string { return fmt.Sprintf(passedOver, first, last) }

// ReplayedFrom says from where on mail comes again.
func ReplayedFrom(position uint64) string { return fmt.Sprintf(replayedFrom, position) }

const (
	movesPage = 500
	// maxMovePages bounds how far back is looked for what operators did.
	maxMovePages = 4
)

// Moves finds in the audit what operators did to mail. It is safe for concurrent
// use.
type Moves struct{ Store store.Audit }

// PassedOver returns which operator has passed over the message that has a
// position at an address and was sent at a time, and when; ok is false if none has,
// or if the mail was replayed later, or if it is not recorded, or not any more. What
// was done within the last second is not recorded yet.
func (m Moves) PassedOver(ctx context.Context, address string, position uint64, sent time.Time) (by string, at time.Time, ok bool, err error) {
	f := store.AuditFilter{Kind: string(Operate), Since: sent.Add(-time.Minute)} // clocks differ
	for range maxMovePages {
		list, err := m.Store.AuditRecords(ctx, f, movesPage)
		if err != nil {
			return "", at, false, err
		}
		for i := range list {
			x := &list[i]
			if x.Target != address || x.Outcome != OK {
				continue
			}
			var first, last uint64
			switch x.Action {
			case MailSkip, MailPurge:
				if n, _ := fmt.Sscanf(x.Detail, passedOver, &first, &last); n == 2 && first <= position && position <= last {
					return x.Actor, x.At, true, nil
				}
			case MailReplay:
				if n, _ := fmt.Sscanf(x.Detail, replayedFrom, &first); n == 1 && first <= position {
					return "", at, false, nil
				}
			}
		}
		if len(list) < movesPage {
			break
		}
		f.Before = &list[len(list)-1].AuditKey
	}
	return "", at, false, nil
}
