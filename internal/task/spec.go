package task

import (
	"encoding/json"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Spec is what of a task is neither searched nor changed.
type Spec struct {
	Metadata map[string]string `json:"metadata,omitempty"`
	// Overrides are the launch parameters that the creator has set; Params those
	// with which it is launched. They may hold secrets, and are not shown.
	Overrides map[string]string `json:"overrides,omitempty"`
	Params    map[string]string `json:"params,omitempty"`
	Retry     *Policy           `json:"retry,omitempty"`
	// Done is the event that its creator wants when it ends.
	Done *Done `json:"done,omitempty"`
	// TokenFor is the identity that the creator got a token for.
	TokenFor string `json:"token_for,omitempty"`
}

// Done asks for an event at the end of a task.
type Done struct {
	Name string  `json:"name"`
	On   []int32 `json:"on,omitempty"` // aetherv1.TaskStatus; none: all
}

// Encode is the form in which a Spec is stored.
func (s *Spec) Encode() string {
	b, err := json.Marshal(s)
	if err != nil {
		panic("task: a spec cannot be encoded: " + err.Error()) // it has texts and finite numbers only
	}
	return string(b)
}

// DecodeSpec reads what Encode has written.
func DecodeSpec(text string) (*Spec, error) {
	s := &Spec{}
	if text == "" {
		return s, nil
	}
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return nil, err
	}
	return s, nil
}

// Wait is what a task waits for.
type Wait struct {
	Reason       int32             `json:"reason"`
	Expected     string            `json:"expected,omitempty"`
	InputMatch   map[string]string `json:"input_match,omitempty"`
	AuthorityID  string            `json:"authority_id,omitempty"`
	DependsOn    []string          `json:"depends_on,omitempty"`
	Any          bool              `json:"any,omitempty"`
	TimeoutMS    int64             `json:"timeout_at,omitempty"` // Unix ms
	WakeMS       int64             `json:"wake_ms,omitempty"`
	CheckpointBy string            `json:"checkpoint,omitempty"`
	Session      string            `json:"session,omitempty"`
	Wakers       []string          `json:"wakers,omitempty"`
	Escalation   string            `json:"escalation,omitempty"`
	Timeout      int64             `json:"timeout,omitempty"` // as it was asked for
}

func (w *Wait) encode() string {
	b, err := json.Marshal(w)
	if err != nil {
		panic("task: a wait cannot be encoded: " + err.Error())
	}
	return string(b)
}

// decodeWait reads what encode has written; nil if there is nothing.
func decodeWait(text string) *Wait {
	if text == "" {
		return nil
	}
	w := &Wait{}
	if json.Unmarshal([]byte(text), w) != nil {
		return nil
	}
	return w
}

// wire is the wait as it is shown.
func (w *Wait) wire() *aetherv1.WaitSpec {
	if w == nil {
		return nil
	}
	spec := &aetherv1.WaitSpec{
		Reason: aetherv1.WaitReason(w.Reason), ExpectedPrincipal: w.Expected, InputMatch: w.InputMatch, AuthorityRequestId: w.AuthorityID,
		DependsOn: w.DependsOn, WakeOnAny: w.Any, TimeoutMs: w.Timeout, ScheduledWakeUnixMs: w.WakeMS,
	}
	if w.Reason == int32(aetherv1.WaitReason_WAIT_REASON_HIBERNATION) {
		spec.Hibernation = w.hibernation()
	}
	return spec
}

func (w *Wait) hibernation() *aetherv1.HibernationDescriptor {
	return &aetherv1.HibernationDescriptor{
		CheckpointKey: w.CheckpointBy, ResumeSessionId: w.Session, WakeEventTypes: w.Wakers, EscalationPolicy: w.Escalation,
	}
}
