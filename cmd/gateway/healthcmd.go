package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/aether-gateway/gateway/internal/config"
)

// healthCmd is for the health checks of containers, which have no other program
// to ask with.
type healthCmd struct {
	HTTPAddr string `name:"http-addr" placeholder:"HOST:PORT" help:"The gateway's HTTP port (default: as AETHER_HTTP_ADDR says, else 127.0.0.1:8080)."`
	TLS      bool   `name:"tls" help:"The port speaks TLS, as it does if AETHER_TLS_CERT_FILE is set."`
	Live     bool   `help:"Ask only whether it is alive, not whether it is ready."`
	Timeout  string `default:"3s" placeholder:"TIME" help:"How long it may take to answer."`
}

func (c *healthCmd) Run(p *program) error {
	timeout, err := config.ParseDuration(c.Timeout)
	if err != nil || timeout <= 0 {
		return usagef("--timeout: %q is no positive duration", c.Timeout)
	}
	addr := first(c.HTTPAddr, p.getenv("AETHER_HTTP_ADDR"), "127.0.0.1:8080")
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "0" {
		return usagef("%s is not the address of a gateway's HTTP port; give it with --http-addr", addr)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	url := net.JoinHostPort(host, port) + "/readyz"
	if c.Live {
		url = net.JoinHostPort(host, port) + "/healthz"
	}
	if c.TLS || p.getenv("AETHER_TLS_CERT_FILE") != "" {
		url = "https://" + url
	} else {
		url = "http://" + url
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	// Not the default transport: a proxy of the environment is not asked. Nothing secret is sent, and
	// the certificate is for the name by which others know the gateway.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("no gateway answers at %s: %w", net.JoinHostPort(host, port), err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(p.stdout, io.LimitReader(response.Body, 1<<16)); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return silentError{}
	}
	return nil
}
