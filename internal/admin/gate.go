package admin

import (
	"context"
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
	Verify(ctx context.Context, token string) (*auth.Credential, error)
}

// Operator is who calls.
type Operator struct {
	// Name is the subject of the credential, or its id, for the audit.
	Name string
	// ExpiresAt is when the credential does.
	ExpiresAt time.Time
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
	// Refused records who was not let in; nil records nothing.
	Refused *audit.Recorder
}

// Open returns the context for a call with these values of the `authorization`
// metadata, or the status with which it is refused. The context ends when the
// credential expires. Whatever is not an operator's credential beyond doubt is
// refused.
func (g *Gate) Open(ctx context.Context, authorization []string) (context.Context, context.CancelFunc, error) {
	admitted, cancel, err := g.open(ctx, authorization)
	if err != nil && g != nil {
		st := status.Convert(err)
		g.Refused.Record(audit.Event{
			Kind: audit.Refusal, Actor: host(ctx), Action: "operate", Outcome: audit.Refused, Reason: st.Code().String(), Detail: st.Message(),
		})
	}
	return admitted, cancel, err
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

func (g *Gate) open(ctx context.Context, authorization []string) (context.Context, context.CancelFunc, error) {
	if g == nil || g.Verifier == nil {
		return nil, nil, status.Error(codes.PermissionDenied, "this gateway serves no operators")
	}
	presented, err := auth.FromMetadataAndInit(authorization, nil)
	if err != nil {
		return nil, nil, status.Error(auth.Code(err), err.Error())
	}
	credential, err := g.Verifier.Verify(ctx, presented.Token())
	if err != nil {
		return nil, nil, status.Error(auth.Code(err), err.Error())
	}
	if !credential.IsOperator() {
		return nil, nil, status.Errorf(codes.PermissionDenied, "the credential is of kind %s; operator commands need one of kind operator", credential.Kind)
	}
	o := Operator{Name: credential.Subject, ExpiresAt: credential.ExpiresAt}
	if o.Name == "" {
		o.Name = credential.ID
	}
	ctx, cancel := context.WithDeadline(context.WithValue(ctx, operatorKey{}, o), o.ExpiresAt)
	return ctx, cancel, nil
}
