package rabbitmq

import (
	"context"
	"errors"
	"sync"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/aether-gateway/gateway/internal/streams"
)

// environment is the library's Environment for one endpoint, with what its
// errors need.
type environment struct {
	*stream.Environment
	endpoint endpoint
}

// connect logs in at one endpoint and leaves again: the library's Environment
// connects anew when it is used, and then it tries for ever. So it is only used
// just after it was made, when the broker is known to be there.
func (d *Driver) connect(e endpoint) (*environment, error) {
	o := stream.NewEnvironmentOptions()
	o.ConnectionParameters = []*stream.Broker{e.broker()}
	o.SetReadBuffer(0).SetWriteBuffer(0) // the kernel's; the library's own are 300 msg/s on loopback
	o.SetRequestedMaxFrameSize(frameMax)
	o.SetRPCTimeout(rpcTimeout)
	o.SetMeterProvider(noop.NewMeterProvider())
	o.SetRequestedHeartbeat(3 * heartbeat)
	o.SetMaxProducersPerClient(1)
	o.SetMaxConsumersPerClient(2) // a consumer, and before it one that has looked where the log ends
	if d.tls != nil {
		o.SetTLSConfig(d.tls)
	}
	if len(d.endpoints) == 1 {
		o.SetAddressResolver(e.resolver())
	}
	env, err := stream.NewEnvironment(o)
	if err != nil {
		return nil, explain("log in", e.address(), err)
	}
	// NewEnvironment refuses less than three seconds; connections that are
	// made from now on take it.
	o.SetRequestedHeartbeat(heartbeat)
	return &environment{Environment: env, endpoint: e}, nil
}

// release closes what was opened with the environment, and its connections.
func (e *environment) release() {
	if e == nil || e.Environment == nil {
		return
	}
	_ = protect(func() (struct{}, error) { return struct{}{}, e.Close() }).err
}

// maxLogins bounds the openings that are underway at a time.
const maxLogins = 4

// anywhere runs f on the first endpoint that lets the driver in, beginning with
// the one that answered last.
//
// At most maxLogins run at a time, for the broker's sake: logging in is by far
// the most that it does for an opening, and when all openings of a gateway come
// at once, as after its restart, each would be as slow as all of them together,
// none would be in time, and the next attempt would meet the same.
func anywhere[T any](ctx context.Context, d *Driver, f func(*environment) (T, error)) (T, error) {
	var none T
	var failed error
	select {
	case d.logins <- struct{}{}:
	case <-ctx.Done():
		return none, &Error{Op: "log in", Host: d.endpoints[d.first.Load()].address(), Kind: ErrUnreachable, Err: context.Cause(ctx)}
	case <-d.ctx.Done():
		return none, streams.ErrClosed
	}
	// Whose caller has left hangs, perhaps for ever, and holds up nobody.
	leave := sync.OnceFunc(func() { <-d.logins })
	defer leave()
	defer context.AfterFunc(ctx, leave)()
	begin := int(d.first.Load())
	for i := range d.endpoints {
		n := (begin + i) % len(d.endpoints)
		// An endpoint that swallows connections, as of a machine that is off,
		// takes all of the caller's time: the next attempt begins elsewhere.
		elsewhere := context.AfterFunc(ctx, func() {
			d.first.CompareAndSwap(uint32(n), uint32((n+1)%len(d.endpoints)))
		})
		env, err := d.connect(d.endpoints[n])
		elsewhere()
		if err == nil {
			d.first.Store(uint32(n))
			var value T
			if value, err = f(env); err == nil {
				return value, nil
			}
			env.release()
		}
		if failed == nil || errors.Is(failed, ErrUnreachable) {
			failed = err
		}
		if permanent(err) || ctx.Err() != nil {
			break
		}
	}
	return none, failed
}

// Ping checks that a broker lets the driver in. It makes a connection of its
// own, a few milliseconds of the broker's time, and ends with ctx.
func (d *Driver) Ping(ctx context.Context) error {
	_, err := call(ctx, d, "ping", func() (struct{}, error) {
		return anywhere(ctx, d, func(env *environment) (struct{}, error) {
			env.release()
			return struct{}{}, nil
		})
	}, nil)
	return err
}

// leaderTries is how often Open asks a leader's advertised address before it
// says that it cannot be reached.
const leaderTries = 3

// declare creates the streams. In a cluster it also looks whether their leaders
// can be reached at the addresses they advertise.
func (d *Driver) declare(ctx context.Context) error {
	const op = "declare streams"
	leaders, err := call(ctx, d, op, func() ([]endpoint, error) {
		return anywhere(ctx, d, func(env *environment) ([]endpoint, error) {
			leaders, err := d.declareOn(ctx, env)
			if err == nil {
				env.release()
			}
			return leaders, err
		})
	}, nil)
	for _, leader := range leaders {
		for try := 1; err == nil; try++ {
			_, err = call(ctx, d, op, func() (struct{}, error) {
				env, err := d.connect(leader)
				env.release()
				return struct{}{}, err
			}, nil)
			if err == nil {
				break
			}
			if try < leaderTries && !permanent(err) && ctx.Err() == nil {
				err = nil
				continue
			}
			err = advertised(err)
		}
	}
	return err
}

// advertised names the setting when an advertised address does not answer.
func advertised(err error) error {
	var e *Error
	if errors.As(err, &e) && errors.Is(e.Kind, ErrUnreachable) {
		return &Error{Op: e.Op, Host: e.Host, Kind: ErrAdvertisedHost, Err: e.Err}
	}
	return err
}

// declareOn declares every stream and returns, for a cluster, the endpoints of
// the leaders.
func (d *Driver) declareOn(ctx context.Context, env *environment) ([]endpoint, error) {
	host := env.endpoint.address()
	args := stream.NewStreamOptions().
		SetMaxAge(d.opts.MaxAge).
		SetMaxLengthBytes(stream.ByteCapacity{}.B(d.opts.MaxBytes)).
		SetMaxSegmentSizeBytes(stream.ByteCapacity{}.B(d.opts.SegmentBytes))
	var leaders []endpoint
	known := make(map[string]bool)
	for _, p := range d.parts {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		err := env.DeclareStream(p.name, args) // one that exists already is no error
		if errors.Is(err, stream.PreconditionFailed) {
			exists, lookup := env.StreamExists(p.name)
			if lookup != nil || !exists {
				return nil, explain("declare stream "+p.name, host, err)
			}
			d.log.Warn("the stream exists with another retention or segment size; it is used as it is", "stream", p.name)
			err = nil
		}
		if err != nil {
			return nil, explain("declare stream "+p.name, host, err)
		}
		if len(d.endpoints) == 1 {
			continue
		}
		leader, err := d.leader(env, p)
		if err != nil {
			return nil, err
		}
		if !known[leader.address()] {
			known[leader.address()] = true
			leaders = append(leaders, leader)
		}
	}
	return leaders, nil
}

// leader asks where the stream's leader is.
func (d *Driver) leader(env *environment, p *partition) (endpoint, error) {
	meta, err := env.StreamMetaData(p.name)
	if err != nil {
		return endpoint{}, explain("find the leader of stream "+p.name, env.endpoint.address(), err)
	}
	return env.endpoint.at(meta.Leader.Host, meta.Leader.Port), nil
}
