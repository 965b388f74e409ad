package chaos

import (
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/test/chaos/check"
)

// wire is how one client reaches the gateways: it dials one after the other, and
// notes every frame with a message before the SDK sees it.
type wire struct {
	who, source string // name, and the address by which receivers know it
	rec         *recorder
	nodes       []*node
	// flighty connections break by themselves every few seconds, so that the
	// client moves from gateway to gateway in the middle of its work.
	flighty bool

	mu   sync.Mutex
	rng  *rand.Rand
	last string // the process that was dialled last
}

func newWire(rec *recorder, nodes []*node, who, source string, seed uint64) *wire {
	return &wire{who: who, source: source, rec: rec, nodes: nodes, rng: rand.New(rand.NewPCG(seed, hash(who)))}
}

func hash(s string) uint64 { return uint64(crc32.ChecksumIEEE([]byte(s))) }

// dial connects to any gateway.
func (w *wire) dial(ctx context.Context, _ string) (net.Conn, error) {
	w.mu.Lock()
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	name := n.name()
	life := 2*time.Second + time.Duration(w.rng.Int64N(int64(10*time.Second)))
	w.mu.Unlock()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", n.clients.Addr())
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.last = name
	w.mu.Unlock()
	if !w.flighty {
		return conn, nil
	}
	return &mortal{conn, time.AfterFunc(life, func() { conn.Close() })}, nil
}

// mortal is a connection that ends by itself.
type mortal struct {
	net.Conn
	end *time.Timer
}

func (m *mortal) Close() error {
	m.end.Stop()
	return m.Conn.Close()
}

func (w *wire) options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(w.dial), grpc.WithStreamInterceptor(w.intercept)}
}

func (w *wire) intercept(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &session{ClientStream: s, w: w}, nil
}

// session is a stream whose frames are noted.
type session struct {
	grpc.ClientStream
	w           *wire
	id, gateway string
	over        bool
}

func (s *session) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil {
		if s.id != "" && !s.over {
			s.w.rec.note(check.Event{Kind: check.Left, Who: s.w.who, Session: s.id, Text: err.Error()})
		}
		s.over = true
		return err
	}
	s.frame(m.(*aetherv1.DownstreamMessage))
	return nil
}

func (s *session) frame(m *aetherv1.DownstreamMessage) {
	w := s.w
	switch f := m.GetPayload().(type) {
	case *aetherv1.DownstreamMessage_ConnectionAck:
		w.mu.Lock()
		s.gateway = w.last
		w.mu.Unlock()
		s.id = f.ConnectionAck.GetSessionId()
		text := ""
		if f.ConnectionAck.GetResumed() {
			text = "resumed"
		}
		w.rec.note(check.Event{Kind: check.Joined, Who: w.who, Session: s.id, Gateway: s.gateway, Sender: w.source, Text: text})
	case *aetherv1.DownstreamMessage_Gap:
		w.rec.note(check.Event{Kind: check.Gap, Who: w.who, Session: s.id, Text: f.Gap.GetTopic()})
	case *aetherv1.DownstreamMessage_ProgressUpdate:
		u := f.ProgressUpdate
		attempt, err := strconv.Atoi(u.GetMetadata()["attempt"])
		if u.GetKind() == aetherv1.ProgressKind_PROGRESS_KIND_TASK && err == nil {
			w.rec.note(check.Event{
				Kind: check.Told, Who: w.who, Session: s.id, Task: u.GetTaskId(), Attempt: attempt, Status: u.GetMetadata()["status"],
			})
		}
	case *aetherv1.DownstreamMessage_Msg:
		e := check.Event{
			Kind: check.Delivered, Who: w.who, Session: s.id, Gateway: s.gateway,
			Redelivered: f.Msg.GetRedelivered(), Position: check.NoPosition,
		}
		if f.Msg.Position != nil {
			e.Position = int64(f.Msg.GetPosition())
		}
		msg, err := parse(f.Msg.GetSourceTopic(), f.Msg.GetTopic(), f.Msg.GetMessageId(), f.Msg.GetPayload())
		if err != nil {
			w.rec.note(check.Event{Kind: check.Garbled, Who: w.who, Session: s.id, Text: err.Error()})
			return
		}
		e.Sender, e.To, e.Seq = msg.Sender, msg.To, msg.Seq
		w.rec.note(e)
	}
}

// payload is the text of a message: who sent what to whom, and some padding
// that tells whether it is whole.
func payload(m check.Message) []byte {
	head := fmt.Sprintf("%s|%s|%d|", m.Sender, m.To, m.Seq)
	return []byte(head + strings.Repeat("x", 50+m.Seq%500) + fmt.Sprintf("|%08x", crc32.ChecksumIEEE([]byte(head))))
}

// messageID is the same for every attempt.
func messageID(m check.Message) string {
	return fmt.Sprintf("%08x-%d", crc32.ChecksumIEEE([]byte(m.Sender+"|"+m.To)), m.Seq)
}

// parse tells which message a frame holds, and an error if it holds none or if
// the gateway's words on it are not those of the payload.
func parse(source, topic, id string, body []byte) (check.Message, error) {
	parts := strings.Split(string(body), "|")
	m := check.Message{}
	if len(parts) != 5 {
		return m, fmt.Errorf("payload of %d parts from %s to %s, id %q", len(parts), source, topic, id)
	}
	m.Sender, m.To = parts[0], parts[1]
	if _, err := fmt.Sscan(parts[2], &m.Seq); err != nil {
		return m, fmt.Errorf("sequence %q: %w", parts[2], err)
	}
	if string(payload(m)) != string(body) {
		return m, fmt.Errorf("the payload of %s has changed", m)
	}
	if source != m.Sender || topic != m.To || id != messageID(m) {
		return m, fmt.Errorf("%s came as from %s to %s, id %q", m, source, topic, id)
	}
	return m, nil
}

// wait waits, or until ctx ends.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
