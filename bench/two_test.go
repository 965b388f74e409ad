package main

import (
	"os"
	"testing"
	"time"
)

func TestSums(t *testing.T) {
	t.Parallel()
	if got := sums([]float64{1, 2, 3}, []float64{10, 20}); len(got) != 2 || got[0] != 11 || got[1] != 22 {
		t.Error(got)
	}
}

// TestAcross sees that senders and receivers connect where they should.
func TestAcross(t *testing.T) {
	t.Parallel()
	first := server{title: nameRabbitMQ, target: target{addr: "1", token: "t"}, cpu: []process{{"server", os.Getpid}}}
	st := &two{second: &child{addr: "2", pid: 7}, across: true}
	if s := st.pair(first); s.addr != "2" || s.token != "t" || s.senders.addr != "1" || len(s.cpu) != 2 || s.cpu[1].role != roleSecond || s.cpu[1].pid() != 7 {
		t.Errorf("%+v", s)
	}
	st.across = false
	if s := st.pair(first); s.addr != "1" || s.senders != nil || len(s.cpu) != 2 {
		t.Errorf("%+v", s)
	}
	if len(first.cpu) != 1 {
		t.Error("the first has changed")
	}
}

// TestSendersElsewhere sees that a run uses both addresses.
func TestSendersElsewhere(t *testing.T) {
	t.Parallel()
	a, b := startRelay(t), startRelay(t)
	p, err := newPair(t.Context(), a.target, b.target, 0, load{Payload: 64, Window: 1, Unacked: 8}, runs.Add(1), make(chan error, 4))
	if err != nil {
		t.Fatal(err)
	}
	p.leave()
	if in, out := p.in.conn.Target(), p.out.conn.Target(); in != b.addr || out != a.addr {
		t.Errorf("the receiver is on %s, the sender on %s", in, out)
	}
}

func TestRowsOfTwo(t *testing.T) {
	t.Parallel()
	second := rated(50_000, 0)
	second.CPU[roleSecond] = 200 * time.Millisecond
	r := report{Results: []result{
		{Cell: cell{Name: cellTwo}, Rounds: map[string][]outcome{
			nameRelay:    {delayed(100*time.Microsecond, 0)},
			nameRaw:      {delayed(900*time.Microsecond, 0)},
			nameRabbitMQ: {delayed(1100*time.Microsecond, 0)},
		}},
		{Cell: cell{Name: cellForeign}, Rounds: map[string][]outcome{
			nameRelay:    {rated(100_000, time.Second)},
			nameRabbitMQ: {second},
		}},
	}}
	expectRows(t, &r, []wantedRow{
		{"gateway, one way across two, p50", 1100, 1000, 1.1, "ok"},
		{"gateway, one way across two, p99", 11_000, 10_000, 1.1, ""},
		{"CPU per foreign message: second gateway", 2, 1.5, 4. / 3, "MISSED"},
		{"  the same", 2, 5, 0.4, ""},
	})
	if w := find(t, &r, "gateway, one way across two, p99"); w.Samples != 3 {
		t.Errorf("%d samples", w.Samples)
	}
}
