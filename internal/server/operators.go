package server

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/auth"
)

// Gate decides who may call the operators' service.
type Gate interface {
	// Open returns the context for a call that shows this and how to end it, or
	// the status of a refusal.
	Open(ctx context.Context, shown auth.Shown) (context.Context, context.CancelFunc, error)
}

// operators begins the methods that are for operators only.
var operators = "/" + adminv1.Admin_ServiceDesc.ServiceName + "/"

// admit opens the gate for a call to an operators' method.
func (s *Server) admit(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if s.o.Gate == nil {
		return nil, nil, status.Error(codes.PermissionDenied, "this gateway serves no operators")
	}
	return s.o.Gate.Open(ctx, auth.Shown{Authorization: metadata.ValueFromIncomingContext(ctx, "authorization"), Transport: transportOf(ctx)})
}

// unary guards the operators' methods, and keeps a defect in one call from
// ending the process.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	defer s.recovered(info.FullMethod, &err)
	if strings.HasPrefix(info.FullMethod, operators) {
		admitted, cancel, err := s.admit(ctx)
		if err != nil {
			return nil, err
		}
		defer cancel()
		resp, err = next(admitted, req)
		return resp, expired(admitted, err)
	}
	return next(ctx, req)
}

// expired is the status of an operator's call that failed: that the credential
// has expired meanwhile, if that is why, else the one it had.
func expired(admitted context.Context, err error) error {
	if err == nil || !errors.Is(context.Cause(admitted), auth.ErrExpired) {
		return err
	}
	return status.Error(codes.Unauthenticated, "the credential expired before the call had ended")
}

// streaming is unary for streams.
func (s *Server) streaming(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer s.recovered(info.FullMethod, &err)
	if strings.HasPrefix(info.FullMethod, operators) {
		admitted, cancel, err := s.admit(ss.Context())
		if err != nil {
			return err
		}
		defer cancel()
		return expired(admitted, next(srv, guarded{ss, admitted}))
	}
	return next(srv, ss)
}

// recovered makes an error of a panic.
func (s *Server) recovered(method string, err *error) {
	if r := recover(); r != nil {
		s.o.Logger.Error("a call panicked", "method", method, "panic", r)
		*err = status.Error(codes.Internal, "internal error")
	}
}

// guarded is a stream with the context of the gate.
type guarded struct {
	grpc.ServerStream
	ctx context.Context
}

func (g guarded) Context() context.Context { return g.ctx }
