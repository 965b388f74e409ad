package testservices

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// probeStream is a stream that the harness keeps on each node. That it has a
// leader means that the node serves streams: the listener accepts connections
// a second or more before.
const probeStream = "testservices"

// What the probe needs of the stream protocol.
const (
	keyCreate           = 13
	keyMetadata         = 15
	keyPeerProperties   = 17
	keySASLHandshake    = 18
	keySASLAuthenticate = 19
	keyTune             = 20
	keyOpen             = 21
	keyResponse         = 0x8000

	codeOK            = 1
	codeStreamUnknown = 2
)

// probe makes sure that the probe stream exists and has a leader. It speaks the
// protocol itself, as a client library retries, logs and starts goroutines.
func probe(port int) error {
	p, err := newProber(port)
	if err != nil {
		return err
	}
	defer p.conn.Close()
	state, err := p.streamState(probeStream)
	if err != nil {
		return err
	}
	if state.code == codeStreamUnknown {
		if _, err := p.call(keyCreate, text(nil, probeStream), noItems); err != nil {
			return err
		}
		state, err = p.streamState(probeStream)
		if err != nil {
			return err
		}
	}
	if state.code != codeOK {
		return fmt.Errorf("the stream of the probe is not available: code %d", state.code)
	}
	if state.leader == 0 {
		return errors.New("the stream of the probe has no leader")
	}
	return nil
}

// AwaitStreams waits, up to three minutes, until the node serves all of these streams:
// each has a leader. After Start that comes one by one, and how soon is the
// node's own affair.
func (b *Broker) AwaitStreams(names ...string) {
	b.own().Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.beam.await(brokerStartLimit, func() error {
		for _, name := range names {
			switch s, err := stateOfStream(b.streamPort, name); {
			case err != nil:
				return err
			case s.code != codeOK || s.leader == 0:
				return fmt.Errorf("the stream %q is not available: code %d, leader %d", name, s.code, s.leader)
			}
		}
		return nil
	})
	if err != nil {
		b.tb.Fatalf("testservices: RabbitMQ: %v", err)
	}
}

// stateOfStream asks the node at a port about a stream.
func stateOfStream(port int, stream string) (streamState, error) {
	p, err := newProber(port)
	if err != nil {
		return streamState{}, err
	}
	defer p.conn.Close()
	return p.streamState(stream)
}

type prober struct {
	conn net.Conn
	id   uint32
}

// newProber opens a connection; the caller closes it.
func newProber(port int) (*prober, error) {
	conn, err := net.DialTimeout("tcp4", loopback(port), time.Second)
	if err != nil {
		return nil, err
	}
	p := &prober{conn: conn}
	if err = conn.SetDeadline(time.Now().Add(5 * time.Second)); err == nil {
		err = p.open()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return p, nil
}

// noItems is an empty list or map.
var noItems = []byte{0, 0, 0, 0}

func (p *prober) open() error {
	if _, err := p.call(keyPeerProperties, noItems); err != nil {
		return err
	}
	if _, err := p.call(keySASLHandshake); err != nil {
		return err
	}
	credentials := "\x00guest\x00guest"
	login := binary.BigEndian.AppendUint32(text(nil, "PLAIN"), uint32(len(credentials)))
	if _, err := p.call(keySASLAuthenticate, append(login, credentials...)); err != nil {
		return err
	}
	limits, err := p.await(keyTune)
	if err != nil {
		return err
	}
	if err := p.send(keyTune|keyResponse, limits); err != nil { // the broker's limits will do
		return err
	}
	_, err = p.call(keyOpen, text(nil, "/"))
	return err
}

// streamState is what a node knows of a stream: who serves it, by the ports
// that the nodes advertise.
type streamState struct {
	code     uint16
	leader   int // 0: none
	replicas []int
}

func (p *prober) streamState(stream string) (streamState, error) {
	query := text(binary.BigEndian.AppendUint32(nil, 1), stream)
	p.id++
	if err := p.send(keyMetadata, binary.BigEndian.AppendUint32(nil, p.id), query); err != nil {
		return streamState{}, err
	}
	r, err := p.await(keyMetadata | keyResponse)
	if err != nil {
		return streamState{}, err
	}
	return parseStreamState(r)
}

// parseStreamState reads a metadata response about one stream.
func parseStreamState(b []byte) (streamState, error) {
	in := reader{b: b}
	in.uint32() // correlation id
	ports := make(map[uint16]int)
	for n := in.uint32(); n > 0 && !in.short; n-- {
		reference := in.uint16()
		in.text() // host
		ports[reference] = int(in.uint32())
	}
	in.uint32() // one stream
	in.text()
	s := streamState{code: in.uint16(), leader: ports[in.uint16()]}
	for n := in.uint32(); n > 0 && !in.short; n-- {
		if port := ports[in.uint16()]; port != 0 {
			s.replicas = append(s.replicas, port)
		}
	}
	if in.short {
		return streamState{}, errors.New("metadata response cut short")
	}
	return s, nil
}

// call sends a request and returns what follows the code of its response.
func (p *prober) call(key uint16, body ...[]byte) ([]byte, error) {
	p.id++
	body = append([][]byte{binary.BigEndian.AppendUint32(nil, p.id)}, body...)
	if err := p.send(key, body...); err != nil {
		return nil, err
	}
	r, err := p.await(key | keyResponse)
	if err != nil {
		return nil, err
	}
	in := reader{b: r}
	in.uint32() // correlation id
	if code := in.uint16(); code != codeOK || in.short {
		return nil, fmt.Errorf("stream protocol: command %d: response code %d", key, code)
	}
	return in.b, nil
}

func (p *prober) send(key uint16, body ...[]byte) error {
	size := 4
	for _, b := range body {
		size += len(b)
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(size))
	frame = binary.BigEndian.AppendUint16(frame, key)
	frame = binary.BigEndian.AppendUint16(frame, 1) // version
	for _, b := range body {
		frame = append(frame, b...)
	}
	_, err := p.conn.Write(frame)
	return err
}

// await reads frames up to one with the key and returns what follows its head.
func (p *prober) await(key uint16) ([]byte, error) {
	for {
		var head [8]byte // size, key, version
		if _, err := io.ReadFull(p.conn, head[:]); err != nil {
			return nil, fmt.Errorf("stream protocol: await %#x: %w", key, err)
		}
		size := binary.BigEndian.Uint32(head[:])
		if size < 4 || size > 1<<20 {
			return nil, fmt.Errorf("stream protocol: frame of %d bytes", size)
		}
		body := make([]byte, size-4)
		if _, err := io.ReadFull(p.conn, body); err != nil {
			return nil, err
		}
		if binary.BigEndian.Uint16(head[4:]) == key {
			return body, nil
		}
	}
}

// text appends a string with its length.
func text(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

// reader takes fields from the front of b. Past the end it yields zeros and
// sets short.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.short = true
		r.b = nil
		return make([]byte, n)
	}
	head := r.b[:n]
	r.b = r.b[n:]
	return head
}

func (r *reader) uint16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) uint32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) text() string   { return string(r.take(int(r.uint16()))) }
