package rabbitmq

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// The responses in which a node tells addresses.
const (
	metadataResponse = 0x8000 | 15
	openResponse     = 0x8000 | 21
)

// rewriter is a proxy that changes the broker's responses, to stand for nodes
// that advertise what they should not.
type rewriter struct {
	target  string
	change  func(command uint16, body []byte)
	l       net.Listener
	running sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newRewriter(t *testing.T, target string, change func(command uint16, body []byte)) *rewriter {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rewriter{target: target, change: change, l: l}
	r.running.Go(r.accept)
	t.Cleanup(func() {
		l.Close()
		r.mu.Lock()
		for _, c := range r.conns {
			c.Close()
		}
		r.mu.Unlock()
		r.running.Wait()
	})
	return r
}

func (r *rewriter) url() string { return fmt.Sprintf("rabbitmq-stream://guest:guest@%s/", r.l.Addr()) }

func (r *rewriter) accept() {
	for {
		client, err := r.l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp4", r.target)
		if err != nil {
			client.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, client, server)
		r.mu.Unlock()
		r.running.Go(func() {
			_, _ = io.Copy(server, client)
			server.Close()
		})
		r.running.Go(func() {
			r.answer(client, server)
			client.Close()
		})
	}
}

// answer passes the broker's frames on.
func (r *rewriter) answer(client io.Writer, server io.Reader) {
	head := make([]byte, 8) // length, command, version
	for {
		if _, err := io.ReadFull(server, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head)-4)
		if _, err := io.ReadFull(server, body); err != nil {
			return
		}
		r.change(binary.BigEndian.Uint16(head[4:]), body)
		if _, err := client.Write(append(append([]byte(nil), head...), body...)); err != nil {
			return
		}
	}
}

// replacePort changes a port in a metadata response, where it is a number
// behind the host.
func replacePort(body []byte, from, to int) {
	old := binary.BigEndian.AppendUint32([]byte("127.0.0.1"), uint32(from))
	for i := 0; i+len(old) <= len(body); i++ {
		if string(body[i:i+len(old)]) == string(old) {
			binary.BigEndian.PutUint32(body[i+len(old)-4:], uint32(to))
		}
	}
}

func port(t *testing.T, address string) int {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	return a.Port
}

func TestAdvertisedAddressUnreachable(t *testing.T) {
	t.Parallel()
	real := testservices.RabbitMQ(t).StreamPort()
	nobody := port(t, silent(t, false))
	r := newRewriter(t, fmt.Sprintf("127.0.0.1:%d", real), func(command uint16, body []byte) {
		switch command {
		case metadataResponse:
			replacePort(body, real, nobody)
		case openResponse: // the same port, as text: both have five digits
			if i := strings.LastIndex(string(body), fmt.Sprint(real)); i >= 0 {
				copy(body[i:], fmt.Sprint(nobody))
			}
		}
	})
	// Two URLs make it a cluster, whose advertised addresses are used.
	o := Options{URLs: []string{r.url(), r.url()}, Streams: newStreams(1), Logger: quietLog()}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_, err := Open(ctx, o)
	var e *Error
	if !errors.As(err, &e) || e.Kind != ErrAdvertisedHost || e.Host != fmt.Sprintf("127.0.0.1:%d", nobody) ||
		!strings.Contains(err.Error(), "stream.advertised_host") {
		t.Errorf("got %v", err)
	}
	// With one URL it does not matter.
	o.URLs = o.URLs[:1]
	d := openDriver(t, o)
	store(t, d, 3)
	_, entries := openConsumer(t, d, streams.First())
	entries.wait(t, 3)
}

func TestCluster(t *testing.T) {
	t.Parallel()
	b := testservices.RabbitMQ(t)
	dead := fmt.Sprintf("rabbitmq-stream://guest:guest@%s/", silent(t, false))
	d := openDriver(t, Options{URLs: []string{dead, b.URL()}, Streams: newStreams(1)})
	store(t, d, 3)
	_, entries := openConsumer(t, d, streams.From(1))
	entries.wait(t, 2)
	if err := d.Ping(testContext(t)); err != nil {
		t.Error(err)
	}
}

// A node that answers under another name than it was dialled by makes the
// library connect again and again, for ever: the caller must get out, and be
// told why.
func TestAnotherNodeAnswers(t *testing.T) {
	t.Parallel()
	real := testservices.RabbitMQ(t).StreamPort()
	text := fmt.Sprint(real)
	r := newRewriter(t, fmt.Sprintf("127.0.0.1:%d", real), func(command uint16, body []byte) {
		if command != openResponse {
			return
		}
		if i := strings.LastIndex(string(body), text); i >= 0 {
			body[i] ^= 1 // another digit
		}
	})
	d := openDriver(t, Options{URLs: []string{r.url()}, Streams: newStreams(1)})
	_, err := d.OpenProducer(testContext(t), 0, "a", func(uint64) {})
	if !errors.Is(err, ErrAdvertisedHost) || !strings.Contains(err.Error(), "calls itself") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := d.OpenConsumer(ctx, 0, streams.Next(), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
