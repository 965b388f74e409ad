package chaos

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/test/chaos/check"
)

// play makes the faults of a schedule, one step after the other. A step that
// takes its time, such as the start of a broker, delays all later ones by that.
func (d *deployment) play(steps []step) {
	d.tb.Helper()
	late := time.Duration(0)
	for _, s := range steps {
		due := s.at + late
		if left := due - time.Since(d.rec.start); left > 0 {
			t := time.NewTimer(left)
			for waiting := true; waiting; {
				look := time.NewTimer(100 * time.Millisecond)
				select {
				case <-t.C:
					waiting = false
				case <-look.C:
					d.revive()
				}
				look.Stop()
			}
		}
		note := check.Event{
			Kind: check.Fault, Who: s.fault.kind + " " + part(s.fault.target), Text: s.fault.String(), Gateway: d.holdsUp(s.fault),
			Emptied: s.fault.target == "redis" && (s.fault.kind == flush || s.fault.kind == kill),
		}
		if s.heal {
			note.Kind = check.Healed
		}
		if !s.heal || s.fault.hold > 0 {
			d.tb.Logf("%7.1fs %s: %v", time.Since(d.rec.start).Seconds(), note.Kind, s.fault)
		}
		if !s.heal {
			d.rec.note(note)
		}
		d.apply(s)
		if s.heal {
			d.rec.note(note)
		}
		late += max(0, time.Since(d.rec.start)-due)
	}
}

// holdsUp names the process whose frames do not reach clients meanwhile, but may
// afterwards; "" if none.
func (d *deployment) holdsUp(f fault) string {
	var index int
	gateway, link, _ := strings.Cut(f.target, "-")
	if scan(gateway, "g%d", &index) && (f.kind == stop && link == "" || f.kind == swallow && link == "clients") {
		return d.nodes[index].name()
	}
	return ""
}

// revive starts gateways again that have ended by themselves, unless they were
// killed on purpose.
func (d *deployment) revive() {
	for _, n := range d.nodes {
		if n.revive() {
			d.tb.Logf("%7.1fs gateway %d had ended by itself and was started again", time.Since(d.rec.start).Seconds(), n.index)
		}
	}
}

func (d *deployment) apply(s step) {
	d.tb.Helper()
	f := s.fault
	var index int
	switch {
	case f.target == "redis":
		d.applyService(s, d.redis, d.flush)
	case f.target == "postgres":
		d.applyService(s, d.database, nil)
	case scan(f.target, "rabbitmq%d", &index):
		d.applyService(s, d.brokers[index], nil)
	case scan(f.target, "all-rabbitmq%d", &index):
		applyLink(s, d.shared[index])
	case strings.Contains(f.target, "-"):
		gateway, link, _ := strings.Cut(f.target, "-")
		scan(gateway, "g%d", &index)
		if link == "clients" {
			applyLink(s, d.nodes[index].clients)
		} else {
			applyLink(s, d.nodes[index].links[link])
		}
	case scan(f.target, "g%d", &index):
		d.nodes[index].apply(s)
	default:
		d.tb.Fatalf("no such target: %q", f.target)
	}
}

func scan(target, format string, index *int) bool {
	n, err := fmt.Sscanf(target, format, index)
	return n == 1 && err == nil && fmt.Sprintf(format, *index) == target
}

// service is what package testservices starts.
type service interface {
	Kill()
	Start()
	Stop()
	Cont()
}

func (d *deployment) applyService(s step, service service, flushes func()) {
	d.tb.Helper()
	switch {
	case s.fault.kind == flush && !s.heal:
		flushes()
	case s.fault.kind == kill && !s.heal:
		service.Kill()
	case s.fault.kind == kill:
		service.Start()
	case s.fault.kind == stop && !s.heal:
		service.Stop()
	case s.fault.kind == stop:
		service.Cont()
	}
}

func (n *node) apply(s step) {
	n.tb.Helper()
	switch {
	case s.heal && s.fault.kind == stop:
		n.signal(syscall.SIGCONT)
	case s.heal:
		n.start()
	case s.fault.kind == stop:
		n.signal(syscall.SIGSTOP)
	case s.fault.kind == drain:
		n.end(syscall.SIGTERM, 30*time.Second)
	default:
		n.kill()
	}
}

func applyLink(s step, p *faultproxy.Proxy) {
	switch s.fault.kind {
	case cut:
		if !s.heal {
			p.Cut()
		}
	case refuse:
		p.Refuse(!s.heal)
		p.Cut()
	case swallow:
		p.Blackhole(!s.heal)
	case slow:
		d := s.fault.delay
		if s.heal {
			d = 0
		}
		p.DelayUp(d)
		p.DelayDown(d)
	}
}
