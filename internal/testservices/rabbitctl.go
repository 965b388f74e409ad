package testservices

import (
	"os/exec"
	"path/filepath"
)

// Ctl runs rabbitmqctl on the node and returns what it said. It takes a second
// or two.
func (b *Broker) Ctl(args ...string) string {
	b.own().Helper()
	cmd := exec.Command(filepath.Join(filepath.Dir(b.script), "rabbitmqctl"), append([]string{"--quiet", "--node", b.node}, args...)...)
	cmd.Env = b.env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.tb.Fatalf("testservices: RabbitMQ: rabbitmqctl %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// DiskAlarm makes the node believe that its disk is full, or not: it takes no
// more from producers then.
func (b *Broker) DiskAlarm(on bool) {
	b.own().Helper()
	limit := "50MB"
	if on {
		limit = "1000000GB"
	}
	b.Ctl("set_disk_free_limit", limit)
}

// Permit lets guest write to streams whose names match a regular expression of
// Erlang. Connections that there are keep what they have opened.
func (b *Broker) Permit(write string) {
	b.own().Helper()
	b.Ctl("set_permissions", "-p", "/", "guest", ".*", write, ".*")
}

// DeleteStream deletes a stream with all that it holds.
func (b *Broker) DeleteStream(name string) {
	b.own().Helper()
	b.Ctl("eval", `{ok, _} = rabbit_stream_manager:delete(<<"/">>, <<"`+name+`">>, <<"guest">>).`)
}

// CreateStream creates a stream that does not exist.
func (b *Broker) CreateStream(name string) {
	b.own().Helper()
	b.Ctl("eval", `{ok, _} = rabbit_stream_manager:create(<<"/">>, <<"`+name+`">>, #{}, <<"guest">>).`)
}
