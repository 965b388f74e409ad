package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
)

var (
	// ErrSilent is the end of a question whose gateway has not answered in
	// time: it is gone, cut off, or busy.
	ErrSilent = errors.New("peers: no answer")
	// ErrUnknown is the answer of a gateway that does not know the question,
	// such as one of another version.
	ErrUnknown = errors.New("peers: the gateway does not know this question")
	// ErrTooLarge says that a question or an answer is above [MaxPayload].
	ErrTooLarge = errors.New("peers: too large for a notice")
)

// MaxPayload bounds questions and answers, in bytes.
const MaxPayload = presence.MaxNotice - 256

// DefaultTimeout is how long a question waits at most.
const DefaultTimeout = 1500 * time.Millisecond

const (
	kindAsk    = "peers.ask"
	kindAnswer = "peers.answer"

	// firstRepeat is when a question is repeated; each pause is twice the last.
	firstRepeat = 200 * time.Millisecond
	// maxServing bounds the questions that are answered at a time; what comes
	// beyond is dropped and will be repeated.
	maxServing = 8
	// maxAnswered bounds the answers that are kept for repeats; the oldest goes.
	maxAnswered = 256
	// maxOpen bounds the questions that wait for an answer; more are refused.
	maxOpen = 4096
)

// Network is what the package needs of presence.
type Network interface {
	presence.Notices
	Self() presence.Instance
	Instances() (list []presence.Instance, certain bool)
}

// Answerer answers a question, soon: whoever asks waits a second or two. It is
// called concurrently, and ctx ends when the gateway does.
type Answerer func(ctx context.Context, question []byte) []byte

// Peers asks and answers. All methods are safe for concurrent use. It must be
// closed.
type Peers struct {
	net    Network
	log    *slog.Logger
	stops  []func()
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	answerers map[string]Answerer
	open      map[uint64]chan<- reply
	last      uint64
	serving   map[served]struct{}
	answered  map[served][]byte // encoded notices
	order     []served          // of answered
}

// served names a question: who asked, under which number.
type served struct {
	from string
	id   uint64
}

type reply struct {
	payload []byte
	err     error
}

// New returns peers over a network that may not have started yet.
func New(net Network, log *slog.Logger) *Peers {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := &Peers{
		net: net, log: log, answerers: map[string]Answerer{}, open: map[uint64]chan<- reply{},
		serving: map[served]struct{}{}, answered: map[served][]byte{},
		last: uint64(time.Now().UnixNano()), // no number of an earlier process
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.stops = []func(){net.Listen(kindAsk, p.asked), net.Listen(kindAnswer, p.answer)}
	return p
}

// Handle makes f the answerer of a kind of question, which is at most 64 bytes
// long.
func (p *Peers) Handle(kind string, f Answerer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answerers[kind] = f
}

// Answer is what a gateway said.
type Answer struct {
	From    presence.Instance
	Payload []byte
	// Err is why there is no payload: [ErrSilent], [ErrUnknown], or another.
	Err error
}

// AskAll asks every live gateway, this one included, and returns when all have
// answered, or after [DefaultTimeout], or before ctx is over: early enough that
// what the others answered can still be told. certain is false if it is not
// known now which gateways live.
func (p *Peers) AskAll(ctx context.Context, kind string, question []byte) (answers []Answer, certain bool) {
	list, certain := p.net.Instances()
	ctx, cancel := bounded(ctx)
	defer cancel()
	answers = make([]Answer, len(list))
	var asking sync.WaitGroup
	for i, peer := range list {
		asking.Go(func() {
			payload, err := p.ask(ctx, peer.ID, kind, question)
			answers[i] = Answer{From: peer, Payload: payload, Err: err}
		})
	}
	asking.Wait()
	return answers, certain
}

// bounded is the time for a question. Of what ctx has left a quarter stays for
// whoever asked.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	wait := DefaultTimeout
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)*3/4)
	}
	return context.WithTimeout(ctx, wait)
}

// Ask asks one gateway, by the id of its instance, and waits for the answer as
// long as [Peers.AskAll] does.
func (p *Peers) Ask(ctx context.Context, to, kind string, question []byte) ([]byte, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return p.ask(ctx, to, kind, question)
}

func (p *Peers) ask(ctx context.Context, to, kind string, question []byte) ([]byte, error) {
	if len(question) > MaxPayload || len(kind) > presence.MaxKind {
		return nil, ErrTooLarge
	}
	if to == p.net.Self().ID {
		return p.own(ctx, kind, question)
	}
	id, answer, err := p.register()
	if err != nil {
		return nil, err
	}
	defer p.unregister(id)
	notice := encodeAsk(id, kind, question)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for wait := firstRepeat; ; {
		select {
		case r := <-answer:
			return r.payload, r.err
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrSilent, ctx.Err())
		case <-p.ctx.Done():
			return nil, presence.ErrClosed
		case <-pause.C:
		}
		// A full queue is one of the ways to lose a notice.
		if err := p.net.Send(to, kindAsk, notice); err != nil && !errors.Is(err, presence.ErrOverflow) {
			return nil, err
		}
		pause.Reset(wait)
		wait *= 2
	}
}

// own asks this gateway itself.
func (p *Peers) own(ctx context.Context, kind string, question []byte) ([]byte, error) {
	p.mu.Lock()
	f := p.answerers[kind]
	p.mu.Unlock()
	if f == nil {
		return nil, ErrUnknown
	}
	return f(ctx, question), nil
}

func (p *Peers) register() (id uint64, answer <-chan reply, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return 0, nil, presence.ErrClosed
	case len(p.open) >= maxOpen:
		return 0, nil, presence.ErrOverflow
	}
	p.last++
	c := make(chan reply, 1)
	p.open[p.last] = c
	return p.last, c, nil
}

func (p *Peers) unregister(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, id)
}

// answer takes the answer of another gateway.
func (p *Peers) answer(n presence.Notice) {
	id, state, payload, ok := decodeAnswer(n.Payload)
	if !ok {
		p.log.Warn("a gateway answered what cannot be read", "gateway", n.From)
		return
	}
	p.mu.Lock()
	c := p.open[id]
	delete(p.open, id)
	p.mu.Unlock()
	if c == nil {
		return // a repeat, or too late
	}
	c <- reply{payload, state.err()}
}

// asked takes a question of another gateway. It returns at once.
func (p *Peers) asked(n presence.Notice) {
	id, kind, question, ok := decodeAsk(n.Payload)
	if !ok {
		p.log.Warn("a gateway asked what cannot be read", "gateway", n.From)
		return
	}
	key := served{n.From, id}
	p.mu.Lock()
	defer p.mu.Unlock()
	if again, ok := p.answered[key]; ok {
		p.send(n.From, again)
		return
	}
	if _, running := p.serving[key]; running || p.closed || len(p.serving) >= maxServing {
		return
	}
	f := p.answerers[kind]
	if f == nil {
		p.send(n.From, encodeAnswer(id, stateUnknown, nil))
		return
	}
	p.serving[key] = struct{}{}
	p.wg.Go(func() { p.serve(key, f, question) })
}

func (p *Peers) serve(key served, f Answerer, question []byte) {
	notice := encodeAnswer(key.id, stateTooLarge, nil)
	if payload := f(p.ctx, question); len(payload) <= MaxPayload {
		notice = encodeAnswer(key.id, stateAnswered, payload)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.serving, key)
	if len(p.order) >= maxAnswered {
		delete(p.answered, p.order[0])
		p.order = append(p.order[:0], p.order[1:]...)
	}
	p.answered[key] = notice
	p.order = append(p.order, key)
	p.send(key.from, notice)
}

// send sends an answer; a lost one is asked for again.
func (p *Peers) send(to string, notice []byte) {
	if err := p.net.Send(to, kindAnswer, notice); err != nil && p.ctx.Err() == nil {
		p.log.Warn("a gateway's question could not be answered", "gateway", to, "error", err)
	}
}

// Close ends all questions, and waits for the answers that are being made. The
// network must still be there.
func (p *Peers) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	for _, stop := range p.stops {
		stop()
	}
	p.cancel()
	p.wg.Wait()
}
