package client

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"google.golang.org/grpc/resolver"
)

// checkAddr refuses an address that could never be connected to, or only to
// where nobody meant: gRPC takes port 443 where none is given. What names a gRPC
// resolver is left to that resolver, and with own an unknown scheme, too: the
// caller's dial options may know it.
func checkAddr(addr string, own bool) error {
	if addr == "" {
		return errors.New("Addr is empty: give host:port, such as 127.0.0.1:50051")
	}
	if scheme, rest, ok := strings.Cut(addr, "://"); ok {
		if own || resolver.Get(scheme) != nil {
			return nil
		}
		return fmt.Errorf("Addr %q begins with %q, which means nothing here: give host:port, such as %s",
			addr, scheme+"://", example(strings.TrimRight(rest, "/")))
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		if scheme, _, ok := strings.Cut(addr, ":"); ok && resolver.Get(scheme) != nil {
			return nil // "unix:path", "dns:host:port"
		}
		if strings.Contains(addr, "/") {
			return fmt.Errorf("Addr %q is not host:port, such as 127.0.0.1:50051", addr)
		}
		if strings.Count(addr, ":") > 1 {
			return fmt.Errorf("Addr %q is not host:port; an IPv6 address stands in brackets, such as [::1]:50051", addr)
		}
		return fmt.Errorf("Addr %q has no port: give host:port, such as %s", addr, example(addr))
	}
	if resolver.Get(host) != nil && !number(port) {
		return nil // "unix:socket"
	}
	switch {
	case host == "":
		return fmt.Errorf("Addr %q has no host: for this machine give %s", addr, example("127.0.0.1:"+port))
	case !number(port):
		return fmt.Errorf("Addr %q: its port is not a number in 1..65535", addr)
	}
	return nil
}

func number(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// example makes host:port of what may be only a host.
func example(s string) string {
	if host, port, err := net.SplitHostPort(s); err == nil && host != "" && number(port) {
		return s
	}
	if s == "" || strings.ContainsAny(s, ":/") {
		return "127.0.0.1:50051"
	}
	return net.JoinHostPort(s, "50051")
}
