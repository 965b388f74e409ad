package e2e

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/aether-gateway/gateway/test/legacy"
)

// tell sends a request of the base protocol that has no answer.
func (o *old) tell(member protoreflect.Name, f fields) {
	o.t.Helper()
	frame, m := legacy.NewFrame(member)
	for name, value := range f {
		m.Set(m.Descriptor().Fields().ByName(name), protoreflect.ValueOf(value))
	}
	check(o.t, o.stream.Send(frame))
}

// wantNotice reads what the gateway says of a task, up to a status.
func (o *old) wantNotice(id, status string) {
	o.t.Helper()
	const kindTask = 3
	for {
		m := o.next("progress_update")
		if legacy.Get(m, "progress_update", "kind").Enum() != kindTask || legacy.Get(m, "progress_update", "task_id").String() != id {
			o.t.Errorf("the creator got %v", m)
			return
		}
		data := legacy.Get(m, "progress_update", "metadata").Map()
		if data.Get(protoreflect.ValueOfString("status").MapKey()).String() == status {
			for _, key := range []string{"task_type", "started_at_ms"} {
				if !data.Has(protoreflect.ValueOfString(key).MapKey()) {
					o.t.Errorf("the notice has no %s: %v", key, m)
				}
			}
			return
		}
	}
}

// Clients of the base protocol create tasks, work on them, report, follow and
// list them, and are told of them.
func testLegacyTasks(t *testing.T, g *gateway) {
	const pool, get, complete, claim, subscribe = protoreflect.EnumNumber(2), protoreflect.EnumNumber(1), protoreflect.EnumNumber(2), protoreflect.EnumNumber(8), protoreflect.EnumNumber(1)
	const running, completed = 2, 3
	ws := workspace(t)
	boss := connectOld(t, g, legacy.Agent(ws, "i", "boss"), "authorization", agent(ws, "i", "boss").flags)
	worker := connectOld(t, g, legacy.Task(ws, "pool", ""), "bearer_token", task(ws, "pool").flags)
	boss.next("config")
	worker.next("config")

	made := boss.ask("create_task", "create_task", fields{
		"task_type": "count", "assignment_mode": pool, "target_implementation": "pool", "payload": []byte("1 2 3"), "request_id": "c", "idempotency_key": "k",
	})
	id := legacy.Get(made, "create_task", "task_id").String()
	if !legacy.Get(made, "create_task", "success").Bool() || id == "" || legacy.Get(made, "create_task", "status").String() != "pending_pool" {
		t.Fatalf("created: %v", made)
	}
	again := boss.ask("create_task", "create_task", fields{"task_type": "count", "assignment_mode": pool, "target_implementation": "pool", "request_id": "c2", "idempotency_key": "k"})
	if legacy.Get(again, "create_task", "task_id").String() != id {
		t.Errorf("the same key made %v", again)
	}
	handed := worker.next("task_assignment")
	if legacy.Get(handed, "task_assignment", "task_id").String() != id || string(legacy.Get(handed, "task_assignment", "payload").Bytes()) != "1 2 3" {
		t.Fatalf("handed: %v", handed)
	}
	boss.tell("task_subscription_op", fields{"op": subscribe, "task_id": id, "client_request_id": "s"})
	if m := boss.next("task_subscription_response"); !legacy.Get(m, "task_subscription_response", "success").Bool() || legacy.Get(m, "task_subscription_response", "client_request_id").String() != "s" {
		t.Errorf("followed: %v", m)
	}
	status := func(m *dynamicpb.Message, member protoreflect.Name) int {
		return int(legacy.Get(m, member, "task", "status").Enum())
	}
	if m := worker.ask("task_op", "task_op", fields{"op": claim, "task_id": id, "request_id": "o"}); status(m, "task_op") != running {
		t.Errorf("claimed: %v", m)
	}
	boss.wantNotice(id, "running")
	worker.tell("progress", fields{"task_id": id, "state": "counting", "completion": 0.5, "recipient": "ag::" + ws + "::i::boss"})
	m := boss.next("progress_update")
	if legacy.Get(m, "progress_update", "completion").Float() != 0.5 || legacy.Get(m, "progress_update", "source").String() == "" || legacy.Get(m, "progress_update", "timestamp_ms").Int() == 0 {
		t.Errorf("reported: %v", m)
	}
	worker.tell("progress", fields{"task_id": id, "completion": 1.5})
	worker.wantError("ERR_INVALID_ARGUMENT")
	if m := worker.ask("task_op", "task_op", fields{"op": complete, "task_id": id, "request_id": "o"}); status(m, "task_op") != completed {
		t.Errorf("completed: %v", m)
	}
	boss.wantNotice(id, "completed")
	for seen := 0; seen != completed; {
		m := boss.next("task_event")
		if legacy.Get(m, "task_event", "task_id").String() != id {
			t.Errorf("followed: %v", m)
		}
		seen = int(legacy.Get(m, "task_event", "status_changed", "to_status").Enum())
	}
	if m := boss.ask("task_query", "task_query", fields{"op": get, "task_id": id, "request_id": "g"}); status(m, "task_query") != completed {
		t.Errorf("asked: %v", m)
	}
	if m := boss.ask("task_query", "task_query", fields{"request_id": "l"}); legacy.Get(m, "task_query", "tasks").List().Len() != 1 {
		t.Errorf("listed: %v", m)
	}
	if m := worker.ask("task_op", "task_op", fields{"op": complete, "task_id": id, "request_id": "late"}); legacy.Get(m, "task_op", "success").Bool() || legacy.Get(m, "task_op", "error").String() == "" {
		t.Errorf("a late completion: %v", m)
	}
}

// Users of the base protocol are in no workspace until they change into one, if
// their credential is for several; after a change nothing of the old one comes,
// and a refused one changes nothing.
func testLegacySwitch(t *testing.T, g *gateway) {
	ws := workspace(t)
	one, two := ws+"1", ws+"2"
	flags := user(ws, "w", one, two).flags
	u := connectOld(t, g, legacy.User(ws, "w"), "authorization", flags)
	first, second := connectOld(t, g, legacy.Agent(one, "i", "a"), "authorization", agent(one, "i", "a").flags), connectOld(t, g, legacy.Agent(two, "i", "a"), "authorization", agent(two, "i", "a").flags)
	// There is no answer to a change; what is refused after it says that it is made.
	barrier := func(o *old) {
		t.Helper()
		check(t, o.stream.Send(legacy.SendFrame("nonsense", nil, 1)))
		o.wantError("ERR_INVALID_TOPIC")
	}
	// Broadcasts of both come in the order of their receipts; those of a workspace
	// in which the user is not do not come at all.
	tell := func(o *old, ws, text string) {
		t.Helper()
		check(t, o.stream.Send(legacy.SendFrame("gu::"+ws, []byte(text), 1)))
		barrier(o)
	}
	change := func(to string) {
		t.Helper()
		check(t, u.stream.Send(legacy.SwitchWorkspaceFrame(to)))
	}
	change(one)
	barrier(u)
	tell(first, one, "in one")
	u.wantMessage("ag::"+one+"::i::a", "in one", one)

	change("another-" + ws)
	u.wantError("ERR_PERMISSION_DENIED")
	tell(first, one, "still in one")
	u.wantMessage("ag::"+one+"::i::a", "still in one", one)

	change(two)
	barrier(u)
	tell(first, one, "not in one any more")
	tell(second, two, "in two")
	u.wantMessage("ag::"+two+"::i::a", "in two", two)
	check(t, u.stream.Send(legacy.SendFrame("ag::"+two+"::i::a", []byte("from two"), 1)))
	second.wantMessage("us::"+ws+"::w", "from two", two)
	check(t, u.stream.Send(legacy.SendFrame("ag::"+one+"::i::a", []byte("from one"), 1)))
	u.wantError("ERR_PERMISSION_DENIED")
	if len(u.kept) > 0 {
		t.Errorf("frames that nobody expected: %v", u.kept)
	}
}
