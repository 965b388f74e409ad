package chaos

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/test/chaos/check"
)

// receiver is a principal that gets messages through the SDK.
type receiver struct {
	check.Receiver
	wire    *wire
	options client.Options
	rng     *rand.Rand // of run
	// trusting leaves it to the SDK to recognise repeats; otherwise the SDK
	// hands on all, and the receiver remembers what it has done, as a program
	// with a database does.
	trusting bool
	restless bool          // it leaves now and then, politely or not
	away     time.Duration // how long at most, if it does

	slow time.Duration // how long it works now and then, at most

	mu    sync.Mutex
	done  map[check.Message]bool
	whims *rand.Rand // of handle
}

// connect makes a client, as a program that starts does.
func (r *receiver) connect(ctx context.Context) (*client.Client, error) {
	return r.connectWith(ctx, r.options)
}

// connectWith is connect with other options than the receiver's own.
func (r *receiver) connectWith(ctx context.Context, o client.Options) (*client.Client, error) {
	o.Addr = "passthrough:///gateway"
	o.AllowPlaintext = true
	o.DialOptions = r.wire.options()
	o.MinBackoff, o.MaxBackoff = 50*time.Millisecond, time.Second
	o.ConnectTimeout = 5 * time.Second
	o.WaitForIdentity = cmp.Or(o.WaitForIdentity, patience)
	if o.Handler == nil {
		o.Handler = r.handle
	}
	if !r.trusting {
		o.DedupeWindow = -1
	}
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	return client.Connect(ctx, o)
}

// handle is the receiver's program: it works, notes that it has, and
// acknowledges by returning nil.
func (r *receiver) handle(ctx context.Context, m *client.Message) error {
	msg, err := parse(m.Source, m.Topic, m.ID, m.Payload)
	if err != nil {
		return nil // the wire has noted it
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.slow > 0 && r.whims.IntN(20) == 0 && !wait(ctx, time.Duration(r.whims.Int64N(int64(r.slow)))) {
		return ctx.Err() // it was interrupted: the message must come again
	}
	if !r.trusting {
		if r.done[msg] {
			return nil
		}
		r.done[msg] = true
	}
	r.wire.rec.note(check.Event{Kind: check.Processed, Who: r.Name, Sender: msg.Sender, To: msg.To, Seq: msg.Seq})
	return nil
}

// run keeps the receiver connected until stop is closed, with absences if it is
// restless until settle is closed. It returns when the client has ended.
func (r *receiver) run(ctx context.Context, settle, stop <-chan struct{}, connected func()) error {
	for {
		c, err := r.connect(ctx)
		if err != nil {
			return err
		}
		connected()
		stay := time.NewTimer(2*time.Second + time.Duration(r.rng.Int64N(int64(8*time.Second))))
		var leave <-chan time.Time
		if r.restless {
			leave = stay.C
		}
		var again bool
		select {
		case <-leave:
			again = true
			select {
			case <-settle:
				again = false
			default:
			}
			if !again { // it is time to stay
				select {
				case <-stop:
				case <-c.Done():
					again = true
				}
			}
		case <-stop:
		case <-c.Done():
			again = true // for good, says the client: its program is started again
		}
		stay.Stop()
		r.close(c)
		if !again {
			return nil
		}
		back := time.NewTimer(time.Duration(r.rng.Int64N(int64(max(r.away, 3*time.Second)))))
		select {
		case <-back.C:
		case <-settle: // what has come for it is waited for
		case <-ctx.Done():
		}
		back.Stop()
		if !wait(ctx, 50*time.Millisecond) { // a program is not started again at once
			return nil
		}
	}
}

// close ends a client in order, or as if its program was killed.
func (r *receiver) close(c *client.Client) {
	closeClient(c, r.restless && r.rng.IntN(2) == 0)
}
