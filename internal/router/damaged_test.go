package router

import (
	"context"
	"testing"

	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
)

// foreign stores an entry as another gateway would.
func (w *world) foreign(entry []byte) {
	w.t.Helper()
	confirmed := make(chan uint64, 1)
	d := w.log.Driver()
	p, err := d.OpenProducer(context.Background(), 0, w.t.Name(), func(id uint64) { confirmed <- id })
	if err != nil {
		w.t.Fatal(err)
	}
	if err := p.Send(p.LastID()+1, entry); err != nil {
		w.t.Fatal(err)
	}
	<-confirmed
	_ = d.Close()
}

// A damaged envelope among good ones was counted and nobody was told: a silent
// hole. Its neighbours are delivered.
func TestDamagedEnvelopeIsTold(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(entry []byte, at int) []byte{
		"checksum":  func(entry []byte, at int) []byte { entry[at+10] ^= 1; return entry },
		"malformed": func(entry []byte, _ int) []byte { return streams.AppendEnvelope(entry, []byte{0xff, 0xff}) },
		"framing":   func(entry []byte, _ int) []byte { return append(entry, 0xff, 0xff, 0x7f, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			b := w.agent("b", client(0))
			b.pump()
			e := envelope.Envelope{Source: "us::u::1", Topic: "ag::w::i::b", Payload: []byte("good"), Origin: 7, Seq: 1}
			entry := streams.AppendEnvelope(streams.BeginEntry(nil), e.Append(nil))
			at := len(entry)
			e.Payload, e.Seq = []byte("other"), 2
			entry = streams.AppendEnvelope(entry, e.Append(nil))
			w.foreign(spoil(entry, at))
			b.wants("good")
			w.left("c")
			c := w.agent("c", client(0))
			c.pump()
			a := w.agent("a", client(0))
			a.send("ag::w::i::b", "after", "")
			for last := ""; last != "after"; last = string(b.message().GetPayload()) {
			}
			p := w.r.parts[0]
			p.mu.Lock() // the gaps are told under it, or by c's pump above
			defer p.mu.Unlock()
			for _, s := range []*session{b, c} {
				if told := s.told(); len(told) != 1 || told[0].Reason != GapDamaged {
					t.Errorf("%s was told %v", s.name, told)
				}
			}
		})
	}
}
