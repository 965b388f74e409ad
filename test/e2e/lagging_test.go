package e2e

import (
	"fmt"
	"strings"
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// A reader of broadcasts that stops loses the oldest, is told exactly how many,
// loses no mail of its own, and nobody else notices.
func testLagging(t *testing.T, g *gateway) {
	const rounds, each = 60, 50
	ws := workspace(t)
	topic := "ga::" + ws
	sender := connect(t, g, user(ws, "w", ws))
	slow, unaware := connect(t, g, agent(ws, "i", "slow"), auto), connect(t, g, agent(ws, "i", "unaware"), plain)
	quick := connect(t, g, agent(ws, "i", "quick"))
	fill := " " + strings.Repeat("x", 4000)
	number := func(m *aetherv1.IncomingMessage) int {
		_, n, err := parseNumbered(strings.TrimSuffix(string(m.GetPayload()), fill))
		check(t, err)
		return n
	}
	n := 0
	for round := range rounds {
		list := numbered("b", n+1, n+each)
		for i := range list {
			list[i] += fill
		}
		sender.stored(topic, list...)
		if round%10 == 0 {
			sender.stored(slow.name(), fmt.Sprintf("mail %d", round))
		}
		for range each {
			n++
			if got := number(quick.read()); got != n {
				t.Fatalf("the quick reader got number %d, want %d", got, n)
			}
		}
	}
	for _, m := range quick.kept {
		if m.GetConfig() == nil {
			t.Errorf("the quick reader was told %v", m)
		}
	}

	sender.stored(topic, "last")
	last, dropped, mail := 0, 0, 0
	for done := false; !done; {
		frame, err := slow.await(func(m *down) bool { return m.GetMsg() != nil || m.GetGap() != nil })
		check(t, err)
		if gap := frame.GetGap(); gap != nil {
			if gap.GetReason() != aetherv1.HistoryGap_REASON_LAGGED || gap.GetTopic() != topic || gap.GetDropped() == 0 || gap.GetDroppedBytes() == 0 {
				t.Errorf("the gap is %v", gap)
			}
			last += int(gap.GetDropped())
			dropped += int(gap.GetDropped())
			continue
		}
		switch m := frame.GetMsg(); {
		case string(m.GetPayload()) == "last":
			done = true
		case m.GetTopic() == slow.name():
			if want := fmt.Sprintf("mail %d", mail*10); string(m.GetPayload()) != want {
				t.Errorf("got %q, want %q", m.GetPayload(), want)
			}
			mail++
		case number(m) != last+1:
			t.Fatalf("number %d follows %d, with the gaps that were told", number(m), last)
		default:
			last++
		}
	}
	if last != n || dropped == 0 {
		t.Errorf("the slow reader got up to %d of %d, %d of them dropped", last, n, dropped)
	}
	if mail != rounds/10 {
		t.Errorf("%d of the slow reader's own messages came before the last broadcast, want %d", mail, rounds/10)
	}

	// Who does not know of gaps gets none.
	for {
		frame, err := unaware.await(func(*down) bool { return true })
		check(t, err)
		if frame.GetMsg() == nil && frame.GetConfig() == nil {
			t.Fatalf("a client without the extension got %v", frame)
		}
		if string(frame.GetMsg().GetPayload()) == "last" {
			break
		}
	}
}

// A client that does not read is heard all the same: what it sends is stored
// and delivered while the answers wait for it.
func testMuteReader(t *testing.T, g *gateway) {
	const n = 5000
	ws := workspace(t)
	to := user(ws, "w", ws)
	receiver := connect(t, g, to, client(1000))
	sender := connect(t, g, agent(ws, "i", "s"), plain)
	sent := make(chan error, 1)
	texts := numbered("m", 1, n)
	go func() {
		for i, text := range texts {
			m := chat(to.name, text)
			m.RequestId = fmt.Sprintf("r%d", i)
			if err := sender.send(m); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	wantTexts(t, receiver.reads(n), texts)
	check(t, <-sent)
	for i := range texts {
		receipt, refusal, err := sender.answer(fmt.Sprintf("r%d", i))
		check(t, err)
		if refusal != nil || receipt.GetStatus() != aetherv1.SendReceipt_STATUS_STORED {
			t.Fatalf("send %d is answered with %v, %v", i, receipt, refusal)
		}
	}
}
