package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The statuses in which a task has ended.
var over = []string{"completed", "failed", "cancelled", "rejected"}

// TaskCounts are counts of tasks and starts. The last six are of violations.
type TaskCounts struct {
	Created, Completed, Failed, Cancelled int
	// Repeated are attempts after the first; Starts the tasks that somebody was
	// started by; Handed what orchestrators were given; Excused creators that were
	// not surely there to be told.
	Repeated, Starts, Handed, Excused int

	Unfinished, TwoHolders, Revived, Attempts, TwoStarts, Untold int
}

// String is the counts as a line, "" if there were no tasks.
func (c TaskCounts) String() string {
	if c.Created == 0 && c.Starts == 0 {
		return ""
	}
	return fmt.Sprintf("tasks: %d created, %d completed, %d failed, %d cancelled, %d more attempts; %d starts, %d given to orchestrators; creators excused: %d\n"+
		"tasks unfinished %d, with two holders %d, revived %d, beyond their attempts %d, two starts %d, untold %d\n",
		c.Created, c.Completed, c.Failed, c.Cancelled, c.Repeated, c.Starts, c.Handed, c.Excused,
		c.Unfinished, c.TwoHolders, c.Revived, c.Attempts, c.TwoStarts, c.Untold)
}

// taskStory is what is known of a task.
type taskStory struct {
	id, creator string
	created     int            // index of the event; -1: it is none of the creators'
	holders     map[int]string // by attempt
	latest      int            // the highest attempt that somebody has begun
	completed   int            // index of the confirmation; -1: none
	ends        []string       // the statuses of an end that its creator was told of
	handed      int            // how often orchestrators were given it
	is          Event          // how it stood last
	isAt        int
}

func (j *judge) violateTask(rule Rule, t *taskStory, who string, event int, format string, args ...any) {
	j.result.Violations = append(j.result.Violations, Violation{Rule: rule, Task: t.id, Who: who, Event: max(event, 0), Text: fmt.Sprintf(format, args...)})
	c := &j.result.Tasks
	switch rule {
	case Unfinished:
		c.Unfinished++
	case TwoHolders:
		c.TwoHolders++
	case Revived:
		c.Revived++
	case Attempts:
		c.Attempts++
	case TwoStarts:
		c.TwoStarts++
	case Untold:
		c.Untold++
	}
}

func (j *judge) task(i int, e Event) {
	t := j.tasks[e.Task]
	if t == nil {
		t = &taskStory{id: e.Task, created: -1, completed: -1, isAt: -1, holders: map[int]string{}}
		j.tasks[e.Task] = t
	}
	switch e.Kind {
	case Created:
		if t.created < 0 {
			t.created, t.creator = i, e.Who
			j.result.Tasks.Created++
		}
	case Handed:
		t.handed++
		j.result.Tasks.Handed++
	case Began:
		if has := t.holders[e.Attempt]; has != "" && has != e.Who {
			j.violateTask(TwoHolders, t, e.Who, i, "%s has begun attempt %d already", has, e.Attempt)
		}
		t.holders[e.Attempt] = cmp.Or(t.holders[e.Attempt], e.Who)
		t.latest = max(t.latest, e.Attempt)
	case Ended:
		switch has := t.holders[e.Attempt]; {
		case t.completed >= 0:
			j.violateTask(Revived, t, e.Who, i, "it was completed before")
		case has != "" && has != e.Who || e.Attempt < t.latest:
			j.violateTask(TwoHolders, t, e.Who, i, "it has completed an attempt that is not its own: %s has begun attempt %d", t.holders[t.latest], t.latest)
		}
		t.completed = i
	case Told:
		if slices.Contains(over, e.Status) && e.Who == t.creator && !slices.Contains(t.ends, e.Status) {
			if t.ends = append(t.ends, e.Status); len(t.ends) > 1 {
				j.violateTask(Revived, t, e.Who, i, "its creator was told of several ends: %s", strings.Join(t.ends, ", "))
			}
		}
	case Is:
		if slices.Contains(over, t.is.Status) && t.is.Status != e.Status {
			j.violateTask(Revived, t, "operator", i, "it was %s, and then %s", t.is.Status, e.Status)
		}
		t.is, t.isAt = e, i
	}
}

// endTasks judges how tasks stand in the end.
func (j *judge) endTasks() {
	starts := map[string][]*taskStory{}
	var all []*taskStory
	for _, t := range j.tasks {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *taskStory) int { return strings.Compare(a.id, b.id) })
	for _, t := range all {
		if t.is.Text != "" {
			j.result.Tasks.Starts++
			starts[t.is.Text] = append(starts[t.is.Text], t)
		}
		if t.created >= 0 || t.is.Text != "" {
			j.endTask(t)
		}
	}
	for _, list := range starts {
		slices.SortStableFunc(list, func(a, b *taskStory) int { return cmp.Compare(a.is.Since, b.is.Since) })
		for i := 1; i < len(list); i++ {
			before, t := list[i-1], list[i]
			if before.is.Until == 0 || before.is.Until-time.Second > t.is.Since {
				j.violateTask(TwoStarts, t, t.is.Text, t.isAt, "start %s of it had not ended", before.id)
			}
		}
	}
}

func (j *judge) endTask(t *taskStory) {
	c := &j.result.Tasks
	c.Repeated += max(0, t.is.Attempt-1)
	if t.is.Most > 0 && t.is.Attempt > t.is.Most {
		j.violateTask(Attempts, t, "operator", t.isAt, "attempt %d of %d", t.is.Attempt, t.is.Most)
	}
	if t.isAt >= 0 && t.handed > t.is.Attempt {
		j.violateTask(Attempts, t, "orchestrators", t.isAt, "it was handed out %d times in %d attempts", t.handed, t.is.Attempt)
	}
	if !slices.Contains(over, t.is.Status) {
		j.violateTask(Unfinished, t, cmp.Or(t.creator, t.is.Text), max(t.created, t.isAt), "it is %s", cmp.Or(t.is.Status, "not to be found"))
		return
	}
	if t.completed >= 0 && t.is.Status != "completed" || len(t.ends) == 1 && t.ends[0] != t.is.Status {
		j.violateTask(Revived, t, "operator", t.isAt, "it is %s, and was said to have ended otherwise", t.is.Status)
	}
	if t.created < 0 {
		return
	}
	switch t.is.Status {
	case "completed":
		c.Completed++
	case "failed":
		c.Failed++
	case "cancelled":
		c.Cancelled++
	}
	if len(t.ends) > 0 {
		return
	}
	// It is told on an address that replays nothing, to who is there.
	r := j.readers[t.creator]
	if r == nil {
		return
	}
	s := r.at(t.is.Until - 2*time.Second)
	if s == nil || s.to >= 0 && s.to < t.is.Until+time.Second+j.h.Reach || s.gaps[""] || slices.ContainsFunc(r.Shared, func(a string) bool { return s.gaps[a] }) {
		c.Excused++
		return
	}
	j.violateTask(Untold, t, t.creator, t.created, "its creator was there and was not told that it is %s", t.is.Status)
}
