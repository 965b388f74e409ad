package check

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// tell makes a history of lines, one a 100 ms: "attempt us::x>ag::w::a#1",
// "delivered a/s1@g0/1 us::x>ag::w::a#1 flagged", "joined a/s1@g0/1", "up g0/1",
// "fault link@g0/1", the gateway whose frames it holds up.
func tell(t *testing.T, lines ...string) History {
	t.Helper()
	h := History{Receivers: receivers, Race: 50 * time.Millisecond, Memory: 30 * time.Second, Fence: 8 * time.Second, Reach: 30 * time.Second}
	now := time.Duration(0)
	for _, line := range lines {
		now += 100 * time.Millisecond
		words := strings.Fields(line)
		if words[0] == "later" {
			d, err := time.ParseDuration(words[1])
			if err != nil {
				t.Fatal(err)
			}
			now += d
			continue
		}
		e := Event{At: now, Kind: Kind(words[0]), Position: NoPosition}
		for _, w := range words[1:] {
			switch {
			case w == "flagged":
				e.Redelivered = true
			case w == "emptied":
				e.Emptied = true
			case strings.HasPrefix(w, "at="):
				e.Position = int64(w[3] - '0')
			case strings.Contains(w, ">"):
				e.Sender, w, _ = strings.Cut(w, ">")
				e.To, w, _ = strings.Cut(w, "#")
				e.Seq = int(w[0] - '0')
			case strings.Contains(w, "@"):
				w, e.Gateway, _ = strings.Cut(w, "@")
				e.Who, e.Session, _ = strings.Cut(w, "/")
			case e.Kind == Up || e.Kind == Down:
				e.Gateway = w
			case e.Kind == Joined || e.Kind == Left:
				e.Who, e.Session, _ = strings.Cut(w, "/")
			default:
				e.Who = w
			}
		}
		if e.Kind == Joined {
			e.Sender = "ag::w::" + e.Who
		}
		h.Events = append(h.Events, e)
	}
	return h
}

// What is not promised is not reported, and its neighbour that is promised is.
func TestExcuses(t *testing.T) {
	t.Parallel()
	const m1, m2 = "us::x>ag::w::a#1", "us::x>ag::w::a#2"
	const job, job2, news = "us::x>tb::w#1", "us::x>tb::w#2", "us::x>ga::w#1"
	jobs := func(calm string, between ...string) []string {
		lines := []string{"joined w1/s1@g0/1", "joined w2/s2@g1/1", "fault link", "healed link", "later " + calm, "attempt " + job, "stored " + job, "attempt " + job2, "stored " + job2}
		lines = append(lines, "delivered w1/s1@g0/1 "+job2, "processed w1 "+job2)
		return append(append(lines, between...), "delivered w1/s1@g0/1 "+job, "processed w1 "+job)
	}
	both := []string{"delivered a/s1@g0/1 " + m2, "processed a " + m2, "delivered a/s1@g0/1 " + m1, "processed a " + m1}
	for _, c := range []struct {
		name  string
		want  []Rule
		lines []string
	}{
		{"overtaken", []Rule{Reordered}, append([]string{"attempt " + m1, "attempt " + m2, "stored " + m1, "stored " + m2}, both...)},
		{"sent again after the later one", nil, append([]string{"attempt " + m1, "refused " + m1, "attempt " + m2, "stored " + m2, "attempt " + m1, "stored " + m1}, both...)},
		{"failure known before the later one", nil, append([]string{"attempt " + m1, "unknown " + m1, "attempt " + m2, "stored " + m2}, both...)},
		{"failure known after the later one", []Rule{Reordered}, append([]string{"attempt " + m1, "attempt " + m2, "unknown " + m1, "stored " + m2}, both...)},
		{"no receipt", nil, []string{"attempt " + m1}},
		{"unknown", nil, []string{"attempt " + m1, "unknown " + m1}},
		{"repeat of another process", nil, []string{
			"attempt " + m1, "delivered a/s1@g0/1 " + m1, "stored " + m1, "delivered a/s2@g1/1 " + m1, "processed a " + m1,
		}},
		{"repeat of the same process", []Rule{Unflagged}, []string{
			"attempt " + m1, "delivered a/s1@g0/1 " + m1, "stored " + m1, "delivered a/s2@g0/1 " + m1, "processed a " + m1,
		}},
		{"first delivery that was noticed late", nil, []string{
			"joined w1/s1@g0/1", "joined w2/s2@g0/1", "attempt " + job, "stored " + job, "left w1/s1",
			"delivered w2/s2@g0/1 " + job + " flagged", "delivered w1/s1@g0/1 " + job, "processed w2 " + job,
		}},
		{"second delivery to a session that came later", []Rule{Duplicated}, []string{
			"joined w2/s2@g0/1", "attempt " + job, "stored " + job, "delivered w2/s2@g0/1 " + job + " flagged",
			"joined w1/s1@g0/1", "delivered w1/s1@g0/1 " + job, "processed w2 " + job,
		}},
		{"two first deliveries and a repeat", []Rule{Duplicated}, []string{
			"joined w1/s1@g0/1", "joined w2/s2@g0/1", "attempt " + job, "stored " + job,
			"delivered w2/s2@g0/1 " + job + " flagged", "delivered w1/s1@g0/1 " + job, "delivered w2/s2@g0/1 " + job, "processed w2 " + job,
		}},
		{"repeat of a repeated send", nil, []string{
			"attempt " + m1, "delivered a/s1@g0/1 " + m1, "unknown " + m1, "attempt " + m1, "stored " + m1, "delivered a/s1@g0/1 " + m1, "processed a " + m1,
		}},
		{"repeat of what the sender's client may have repeated", nil, []string{
			"joined a/s1@g0/1", "attempt ag::w::a>ag::w::b#1", "delivered b/s9@g0/1 ag::w::a>ag::w::b#1", "joined a/s2@g0/1", "stored ag::w::a>ag::w::b#1",
			"delivered b/s9@g0/1 ag::w::a>ag::w::b#1", "processed b ag::w::a>ag::w::b#1",
		}},
		{"no worker", nil, []string{"attempt " + job, "stored " + job}},
		{"a worker that came later", nil, []string{"attempt " + job, "stored " + job, "joined w1/s1@g0/1", "later 20s", "up g1/1"}},
		{"a worker that was there", []Rule{Lost}, []string{"joined w1/s1@g0/1", "later 5s", "attempt " + job, "stored " + job, "later 20s", "left w1/s1"}},
		{"all gateways ended", []Rule{Lost}, []string{
			"up g0/1", "joined w1/s1@g0/1", "later 5s", "attempt " + job, "stored " + job, "fault store", "later 5s", "down g0/1", "up g0/2",
		}},
		{"all gateways ended and all was forgotten", nil, []string{
			"up g0/1", "joined w1/s1@g0/1", "later 5s", "attempt " + job, "stored " + job, "fault store emptied", "later 5s", "down g0/1", "up g0/2",
		}},
		{"all was forgotten, but one gateway lived on", []Rule{Lost}, []string{
			"up g0/1", "up g1/1", "joined w1/s1@g0/1", "later 5s", "attempt " + job, "stored " + job, "fault store emptied", "later 5s", "down g0/1", "up g0/2",
		}},
		{"all was forgotten, and all gateways ended much later", []Rule{Lost}, []string{
			"up g0/1", "joined w1/s1@g0/1", "later 5s", "attempt " + job, "stored " + job, "fault store emptied", "later 50s", "down g0/1", "up g0/2",
		}},
		{"missed broadcast", []Rule{Lost}, []string{"joined a/s1@g0/1", "attempt " + news, "stored " + news}},
		{"missed broadcast, came later", nil, []string{"attempt " + news, "joined a/s1@g0/1", "stored " + news}},
		{"missed broadcast, left", nil, []string{"joined a/s1@g0/1", "attempt " + news, "stored " + news, "left a/s1"}},
		{"missed broadcast, told", nil, []string{"joined a/s1@g0/1", "attempt " + news, "stored " + news, "gap a/s1@g0/1"}},
		{"missed broadcast, left long after", []Rule{Lost}, []string{"joined a/s1@g0/1", "attempt " + news, "stored " + news, "later 31s", "left a/s1"}},
		{"missed broadcast, replaced long after", []Rule{Lost}, []string{"joined a/s1@g0/1", "attempt " + news, "stored " + news, "later 31s", "joined a/s2@g1/1"}},
		{"missed broadcast, replaced", nil, []string{"joined a/s1@g0/1", "attempt " + news, "stored " + news, "joined a/s2@g1/1", "later 31s", "left a/s1"}},
		{"own broadcast", nil, []string{"joined a/s1@g0/1", "attempt ag::w::a>ga::w#1", "stored ag::w::a>ga::w#1"}},
		{"came without a session", nil, []string{"attempt " + job, "stored " + job, "delivered w1/@g0/1 " + job, "processed w1 " + job}},
		{"came in the old session soon", nil, []string{
			"joined a/s1@g0/1", "joined a/s2@g1/1", "attempt " + m1, "stored " + m1, "delivered a/s1@g0/1 " + m1, "processed a " + m1,
		}},
		{"came in the old session much later", []Rule{Stale}, []string{
			"joined a/s1@g0/1", "joined a/s2@g1/1", "later 9s", "attempt " + m1, "stored " + m1, "delivered a/s1@g0/1 " + m1, "processed a " + m1,
		}},
		{"came in the old session when its link was whole again", nil, []string{
			"joined a/s1@g0/1", "fault link@g0/1", "later 3s", "joined a/s2@g1/1", "attempt " + m1, "stored " + m1,
			"later 12s", "healed link@g0/1", "delivered a/s1@g0/1 " + m1, "processed a " + m1,
		}},
		{"came in the old session while its link is broken", nil, []string{
			"joined a/s1@g0/1", "fault link@g0/1", "later 3s", "joined a/s2@g1/1", "attempt " + m1, "stored " + m1,
			"later 12s", "delivered a/s1@g0/1 " + m1, "processed a " + m1,
		}},
		{"came in the old session long after its link was whole again", []Rule{Stale}, []string{
			"joined a/s1@g0/1", "fault link@g0/1", "later 3s", "joined a/s2@g1/1", "attempt " + m1, "stored " + m1,
			"later 12s", "healed link@g0/1", "later 9s", "delivered a/s1@g0/1 " + m1, "processed a " + m1,
		}},
		{"came in the old session when the link of another was whole again", []Rule{Stale}, []string{
			"joined a/s1@g0/1", "fault link@g1/1", "later 3s", "joined a/s2@g1/1", "attempt " + m1, "stored " + m1,
			"later 12s", "healed link@g1/1", "delivered a/s1@g0/1 " + m1, "processed a " + m1,
		}},
		{"a worker's order", []Rule{Reordered}, jobs("20s")},
		{"a worker's order, soon after a fault", nil, jobs("10s")},
		{"a worker's order, during a fault", nil, jobs("20s", "fault link")},
		{"a worker's order, while another leaves", nil, jobs("20s", "left w2/s2")},
		{"a worker's order, just before another leaves", nil, append(jobs("20s"), "left w2/s2")},
		{"a worker's order, before another leaves", []Rule{Reordered}, append(jobs("20s"), "later 2s", "left w2/s2")},
		{"a worker's positions", []Rule{Positions}, []string{
			"joined w1/s1@g0/1", "attempt " + job, "stored " + job, "attempt " + job2, "stored " + job2,
			"delivered w1/s1@g0/1 at=9 " + job, "processed w1 " + job, "delivered w1/s1@g0/1 at=8 " + job2, "processed w1 " + job2,
		}},
	} {
		r := Judge(tell(t, c.lines...))
		var got []Rule
		for _, v := range r.Violations {
			got = append(got, v.Rule)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v\n%s", c.name, got, c.want, report(r))
		}
	}
}

// The counts of the table, and the story of a violation.
func TestTable(t *testing.T) {
	t.Parallel()
	const m1, m2, m3 = "us::x>ag::w::a#1", "us::x>ag::w::a#2", "us::x>ag::w::a#3"
	h := tell(t, "up g0/1", "joined a/s1@g0/1", "joined b/s2@g0/1",
		"attempt "+m1, "stored "+m1, "attempt "+m2, "refused "+m2, "attempt "+m3, "unknown "+m3,
		"later 2s", "delivered a/s1@g0/1 "+m3, "processed a "+m3, "later 3s", "fault link")
	r := Judge(h)
	row := *r.Rows["exclusive"]
	want := Row{Sent: 3, Stored: 1, Refused: 1, Unknown: 1, Delivered: 1, UnknownDelivered: 1, Lost: 1}
	if row != want {
		t.Errorf("got %+v, want %+v", row, want)
	}
	if r.Faults["link"] != 1 || !strings.Contains(r.Table(), "faults: link 1\n") {
		t.Errorf("the fault is not counted:\n%s", r.Table())
	}
	if len(r.Violations) != 1 || r.Violations[0].Rule != Lost {
		t.Fatalf("got:\n%s", report(r))
	}
	story := ""
	for _, e := range Around(h, r.Violations[0]) {
		story += e.String() + "\n"
	}
	for _, part := range []string{"up ", "who=a ", "us::x → ag::w::a #1", "#2", "who=link"} {
		if !strings.Contains(story, part) {
			t.Errorf("%q is missing in the story:\n%s", part, story)
		}
	}
	if strings.Contains(story, "who=b") || strings.Contains(story, "#3") {
		t.Errorf("the story is of others, too:\n%s", story)
	}
}
