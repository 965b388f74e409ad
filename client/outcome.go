package client

import aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"

// Outcome is what became of a send.
type Outcome int

// The outcomes. The zero value is that of a send without a receipt.
const (
	// OutcomeStored: the gateway has stored it. Whether anybody has it is not said.
	OutcomeStored Outcome = iota + 1
	// OutcomeAcked: who had to acknowledge has; see [WithFirst] and [WithAll].
	OutcomeAcked
	// OutcomeNacked: a receiver has refused it, or nobody could acknowledge any more;
	// see [Receipt.Reason].
	OutcomeNacked
	// OutcomeTimedOut: it was not decided in time. The message is stored all the same.
	OutcomeTimedOut
)

// NoEligible is the reason of a send that nobody could acknowledge: none listened.
const NoEligible = "no_eligible_subscribers"

func (o Outcome) String() string {
	switch o {
	case OutcomeStored:
		return "stored"
	case OutcomeAcked:
		return "acked"
	case OutcomeNacked:
		return "nacked"
	case OutcomeTimedOut:
		return "timed_out"
	}
	return "unknown"
}

func receiptOutcome(s aetherv1.SendReceipt_Status) Outcome {
	switch s {
	case aetherv1.SendReceipt_STATUS_ACKED:
		return OutcomeAcked
	case aetherv1.SendReceipt_STATUS_NACKED:
		return OutcomeNacked
	case aetherv1.SendReceipt_STATUS_TIMED_OUT:
		return OutcomeTimedOut
	}
	return OutcomeStored
}
