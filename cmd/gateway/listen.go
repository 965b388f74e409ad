package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"syscall"

	"github.com/aether-gateway/gateway/internal/config"
)

// listeners are the open ports of a gateway.
type listeners struct {
	grpc, http net.Listener
	ops        net.Listener // nil if it is off
}

func (l *listeners) close() {
	for _, lis := range []net.Listener{l.grpc, l.http, l.ops} {
		if lis != nil {
			_ = lis.Close()
		}
	}
}

// listen opens every port, or none and says which one cannot be had.
func listen(cfg *config.Config, log *slog.Logger) (*listeners, error) {
	l := &listeners{}
	var errs []error
	open := func(key, flag, addr string) net.Listener {
		lis, err := net.Listen("tcp", addr)
		if err != nil {
			errs = append(errs, listenError(key, flag, addr, err))
			return nil
		}
		return lis
	}
	l.grpc = open("grpc_addr", "--grpc-addr", cfg.GRPCAddr)
	l.http = open("http_addr", "--http-addr", cfg.HTTPAddr)
	switch {
	case cfg.OpsAddr == config.Off:
	case cfg.IsSet("ops_addr"):
		l.ops = open("ops_addr", "", cfg.OpsAddr)
	default:
		l.ops = l.openDefault(cfg.OpsAddr, log, &errs)
	}
	if len(errs) > 0 {
		l.close()
		return nil, errors.Join(errs...)
	}
	return l, nil
}

// openDefault opens the operators' port where nobody has chosen one. A second
// gateway on the same host gets a free one: it must not fail for a port that
// its operator never asked for.
func (l *listeners) openDefault(addr string, log *slog.Logger, errs *[]error) net.Listener {
	lis, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		log.Warn("the default operators' port is taken; using a free one (set ops_addr to choose)", "addr", addr)
		host, _, _ := net.SplitHostPort(addr)
		lis, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		*errs = append(*errs, listenError("ops_addr", "", addr, err))
		return nil
	}
	return lis
}

// listenError says which port it is and what to change.
func listenError(key, flag, addr string, err error) error {
	change := config.EnvName(key)
	if flag != "" {
		change = flag + " or " + change
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is taken by another process: stop that one, or choose another port with %s; port 0 picks a free one", addr, change)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s may not be opened by this user: choose a port above 1023 with %s", addr, change)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s is not an address of this machine: choose another with %s", addr, change)
	}
	return fmt.Errorf("%s cannot be opened: %w; choose another address with %s", addr, err, change)
}
