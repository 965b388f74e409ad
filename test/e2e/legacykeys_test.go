package e2e

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/aether-gateway/gateway/test/legacy"
)

// fields are those of a frame's payload that are not messages.
type fields map[protoreflect.Name]any

// ask sends a request of the base protocol and returns its answer.
func (o *old) ask(member, answer protoreflect.Name, f fields) *dynamicpb.Message {
	o.t.Helper()
	frame, m := legacy.NewFrame(member)
	for name, value := range f {
		m.Set(m.Descriptor().Fields().ByName(name), protoreflect.ValueOf(value))
	}
	check(o.t, o.stream.Send(frame))
	got := o.next(answer)
	if id := legacy.Get(got, answer, "request_id").String(); id != f["request_id"] {
		o.t.Errorf("the answer is to %q, not to %q", id, f["request_id"])
	}
	return got
}

// Clients of the base protocol keep keys and checkpoints, are told failures as
// they expect them, and find their keys in the second frame, in either pair of
// its fields.
func testLegacyKeys(t *testing.T, g *gateway) {
	const get, put, list, increment, compareAndSet = protoreflect.EnumNumber(0), protoreflect.EnumNumber(1), protoreflect.EnumNumber(2), protoreflect.EnumNumber(4), protoreflect.EnumNumber(9)
	const global = protoreflect.EnumNumber(1)
	ws := workspace(t)
	id, flags := legacy.Agent(ws, "i", "a"), agent(ws, "i", "a").flags
	a := connectOld(t, g, id, "authorization", flags)
	if n := legacy.Get(a.next("config"), "config", "kv").Map().Len(); n != 0 {
		t.Errorf("it begins with %d keys", n)
	}
	kv := func(f fields) protoreflect.Message {
		t.Helper()
		f["request_id"] = "r"
		return legacy.Get(a.ask("kv_op", "kv", f), "kv").Message()
	}
	succeeded := func(m protoreflect.Message) bool { return m.Get(m.Descriptor().Fields().ByName("success")).Bool() }
	if !succeeded(kv(fields{"op": put, "key": "k", "value": []byte("v")})) || !succeeded(kv(fields{"op": put, "scope": global, "key": "g", "value": []byte("w")})) {
		t.Error("a key was not put")
	}
	if m := kv(fields{"op": get, "key": "k"}); string(legacy.Get(m, "value").Bytes()) != "v" {
		t.Errorf("got %v", m)
	}
	if m := kv(fields{"op": get, "key": "missing"}); !succeeded(m) || legacy.Get(m, "value").Bytes() != nil {
		t.Errorf("a missing key: %v", m)
	}
	if m := kv(fields{"op": increment, "key": "n", "delta_value": int64(5)}); legacy.Get(m, "counter_value").Int() != 5 {
		t.Errorf("counted to %v", m)
	}
	if m := kv(fields{"op": compareAndSet, "key": "k", "expected_value": []byte("x"), "value": []byte("y")}); legacy.Get(m, "applied").Bool() || string(legacy.Get(m, "value").Bytes()) != "v" {
		t.Errorf("compared: %v", m)
	}
	m := kv(fields{"op": list, "limit": int32(1)})
	if keys := legacy.Get(m, "keys").List(); keys.Len() != 1 || keys.Get(0).String() != "k" || !legacy.Get(m, "has_more").Bool() {
		t.Errorf("listed %v", m)
	}
	m = kv(fields{"op": list, "cursor": legacy.Get(m, "next_cursor").String()})
	if keys := legacy.Get(m, "keys").List(); keys.Len() != 1 || keys.Get(0).String() != "n" || legacy.Get(m, "has_more").Bool() {
		t.Errorf("listed %v", m)
	}
	if succeeded(kv(fields{"op": increment, "key": "k"})) {
		t.Error("a text was counted")
	}
	failure := a.next("error")
	if legacy.Get(failure, "error", "code").String() != "KV_ERROR" || legacy.Get(failure, "error", "request_id").String() != "r" {
		t.Errorf("a failure is followed by %v", failure)
	}
	saved := a.ask("checkpoint_op", "checkpoint", fields{"key": "c", "data": []byte("state"), "ttl": int64(-1), "request_id": "s"})
	if !legacy.Get(saved, "checkpoint", "success").Bool() || legacy.Get(saved, "checkpoint", "saved_at").Int() == 0 {
		t.Errorf("saved: %v", saved)
	}
	loaded := a.ask("checkpoint_op", "checkpoint", fields{"op": protoreflect.EnumNumber(1), "key": "c", "request_id": "l"})
	if string(legacy.Get(loaded, "checkpoint", "data").Bytes()) != "state" {
		t.Errorf("loaded: %v", loaded)
	}
	check(t, a.stream.CloseSend())
	for {
		if _, _, err := a.stream.Recv(); err != nil {
			break
		}
	}
	config := connectOld(t, g, id, "authorization", flags).next("config")
	for field, want := range map[protoreflect.Name]string{"kv": "k=v n=5 ", "workspace_exclusive_kv": "k=v n=5 ", "global_kv": "g=w ", "global_exclusive_kv": "g=w "} {
		all := legacy.Get(config, "config", field).Map()
		text := ""
		for _, key := range []string{"g", "k", "n"} {
			if v := all.Get(protoreflect.ValueOfString(key).MapKey()); v.IsValid() {
				text += key + "=" + string(v.Bytes()) + " "
			}
		}
		if text != want {
			t.Errorf("%s has %q, want %q", field, text, want)
		}
	}
}
