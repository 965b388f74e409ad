package admin

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/auth"
)

// Verifier checks credentials.
type Verifier interface {
	// Shown finds the credential of a call and checks it.
	Shown(ctx context.Context, shown auth.Shown) (*auth.Credential, error)
}

// Operator is who calls.
type Operator struct {
	// Name is the subject of the credential, or its id, for the audit.
	Name string
	// ExpiresAt is when the credential does; zero is never.
	ExpiresAt time.Time

	credential *auth.Credential
}

type operatorKey struct{}

// operatorOf returns who calls. Without a [Gate] before it there is nobody.
func operatorOf(ctx context.Context) Operator {
	o, _ := ctx.Value(operatorKey{}).(Operator)
	return o
}

// Gate lets calls with an operator's credential through.
type Gate struct {
	Verifier Verifier
	// Failures slows addresses whose credentials fail; nil slows none.
	Failures *auth.Failures
	// Refused records who was not let in; nil records nothing.
	Refused *audit.Recorder
}

// Open returns the context for a call that shows this, or the status with which
// it is refused. The context ends when the credential expires, with
// [auth.ErrExpired] as its cause. Whatever is not an
// operator's credential beyond doubt is refused, and counts against the address.
func (g *Gate) Open(ctx context.Context, shown auth.Shown) (context.Context, context.CancelFunc, error) {
	if g == nil || g.Verifier == nil {
		return nil, nil, status.Error(codes.PermissionDenied, "this gateway serves no operators")
	}
	from := shown.Transport.Peer
	wait, err := g.Failures.Admit(from), error(nil)
	if wait == 0 {
		var admitted context.Context
		var cancel context.CancelFunc
		if admitted, cancel, err = g.open(ctx, shown); err == nil {
			g.Failures.Succeeded(from)
			return admitted, cancel, nil
		}
		if code := status.Code(err); code == codes.Unauthenticated || code == codes.PermissionDenied {
			wait, _ = g.Failures.Failed(from)
		}
	}
	if wait > 0 {
		err = auth.Slowed(wait)
	}
	st := status.Convert(err)
	g.Refused.Record(audit.Event{
		Kind: audit.Refusal, Actor: host(ctx), Action: "operate", Outcome: audit.Refused, Reason: st.Code().String(), Detail: st.Message(),
	})
	return nil, nil, err
}

// host is the caller's, who has proved nothing.
func host(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "unknown"
	}
	if host, _, err := net.SplitHostPort(p.Addr.String()); err == nil {
		return host
	}
	return p.Addr.String()
}

func (g *Gate) open(ctx context.Context, shown auth.Shown) (context.Context, context.CancelFunc, error) {
	credential, err := g.Verifier.Shown(ctx, shown)
	if err != nil {
		return nil, nil, status.Error(auth.Code(err), err.Error())
	}
	if !credential.IsOperator() {
		return nil, nil, status.Errorf(codes.PermissionDenied, "the credential is of kind %s; operator commands need one of kind operator", credential.Kind)
	}
	// The leeway is for connecting: a call must end when the credential does, so
	// one that has ended is no good here.
	if !credential.ExpiresAt.IsZero() && !time.Now().Before(credential.ExpiresAt) {
		return nil, nil, status.Error(auth.Code(auth.ErrExpired), auth.ErrExpired.Error())
	}
	o := Operator{Name: credential.Subject, ExpiresAt: credential.ExpiresAt, credential: credential}
	if o.Name == "" {
		o.Name = credential.ID
	}
	ctx = context.WithValue(ctx, operatorKey{}, o)
	if o.ExpiresAt.IsZero() { // an API key that does not expire
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel, nil
	}
	ctx, cancel := context.WithDeadlineCause(ctx, o.ExpiresAt, auth.ErrExpired)
	return ctx, cancel, nil
}

// ended is the status of a call that failed: that the credential has expired
// meanwhile, if that is why, else the one it had.
func ended(ctx context.Context, err error) error {
	if err == nil || !errors.Is(context.Cause(ctx), auth.ErrExpired) {
		return err
	}
	return status.Error(codes.Unauthenticated, "the credential expired before the call had ended")
}
