package rabbitmq

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"
)

const (
	scheme    = "rabbitmq-stream"
	schemeTLS = "rabbitmq-stream+tls"
)

// endpoint is one address of a broker with what is needed to log in.
type endpoint struct {
	host     string // without brackets
	port     string
	user     string
	password string
	vhost    string
	tls      bool
}

// CheckURLs returns an [ErrConfig] for URLs that Open would refuse, without
// connecting. It does not quote them.
func CheckURLs(urls []string) error {
	_, err := parseEndpoints(urls)
	return err
}

// parseEndpoints reads the URLs of one broker or cluster.
func parseEndpoints(urls []string) ([]endpoint, error) {
	list := make([]endpoint, 0, len(urls))
	for _, text := range urls {
		e, err := parseEndpoint(text)
		if err != nil {
			return nil, err
		}
		if len(list) > 0 && e.tls != list[0].tls {
			return nil, fmt.Errorf("%w: URLs with and without TLS", ErrConfig)
		}
		list = append(list, e)
	}
	return list, nil
}

// parseEndpoint reads rabbitmq-stream[+tls]://user:password@host:port/vhost.
// Its errors do not quote the text, which holds a password.
func parseEndpoint(text string) (endpoint, error) {
	u, err := url.Parse(text)
	if err != nil {
		// The error of url.Parse quotes its input.
		return endpoint{}, fmt.Errorf("%w: not a URL", ErrConfig)
	}
	e := endpoint{host: u.Hostname(), port: u.Port(), user: "guest", password: "guest", vhost: "/"}
	switch u.Scheme {
	case scheme:
	case schemeTLS:
		e.tls = true
	default:
		return endpoint{}, fmt.Errorf("%w: the scheme must be %s or %s", ErrConfig, scheme, schemeTLS)
	}
	if e.host == "" {
		return endpoint{}, fmt.Errorf("%w: the URL has no host", ErrConfig)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return endpoint{}, fmt.Errorf("%w: %s: the URL takes no parameters", ErrConfig, e.host)
	}
	if e.port == "" {
		e.port = stream.StreamTcpPort
	}
	if n, err := strconv.Atoi(e.port); err != nil || n < 1 || n > 65535 {
		return endpoint{}, fmt.Errorf("%w: %s: bad port", ErrConfig, e.host)
	}
	if u.User != nil {
		e.user = u.User.Username()
		e.password, _ = u.User.Password()
		if e.user == "" || e.password == "" {
			return endpoint{}, fmt.Errorf("%w: %s: the URL needs both user and password, or neither", ErrConfig, e.host)
		}
	}
	if vhost := strings.TrimPrefix(u.Path, "/"); vhost != "" {
		if vhost != "/" && strings.Contains(vhost, "/") && !strings.Contains(strings.ToLower(u.RawPath), "%2f") {
			return endpoint{}, fmt.Errorf("%w: %s: write a slash in a virtual host's name as %%2f", ErrConfig, e.host)
		}
		e.vhost = vhost
	}
	return e, nil
}

// address returns host:port.
func (e endpoint) address() string { return net.JoinHostPort(e.host, e.port) }

// at returns the endpoint for another node of the same cluster.
func (e endpoint) at(host, port string) endpoint {
	e.host, e.port = host, port
	return e
}

// broker returns the library's form. The library pastes these fields into a URL
// and parses it: they must be escaped, or a password with an @ in it becomes
// part of the host, and of an error text. It unescapes the virtual host twice.
func (e endpoint) broker() *stream.Broker {
	b := &stream.Broker{
		Scheme:   scheme,
		Host:     e.urlHost(),
		Port:     e.port,
		User:     url.User(e.user).String(),
		Password: url.User(e.password).String(),
		Vhost:    url.PathEscape(url.QueryEscape(e.vhost)),
	}
	if e.tls {
		b.Scheme = schemeTLS
	}
	return b
}

func (e endpoint) urlHost() string {
	if strings.Contains(e.host, ":") {
		return "[" + e.host + "]"
	}
	return e.host
}

// resolver makes the library dial this address whatever the broker advertises.
func (e endpoint) resolver() stream.AddressResolver {
	port, _ := strconv.Atoi(e.port) // was checked by parseEndpoint
	return stream.AddressResolver{Host: e.urlHost(), Port: port}
}

// tlsConfig returns what a connection to any of the endpoints' cluster needs.
// The library dials nodes whose names are only learnt from the broker and does
// not set the server's name. So the certificate is verified here, in full, and
// must be for one of the configured hosts.
func tlsConfig(base *tls.Config, endpoints []endpoint) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if base != nil {
		c = base.Clone()
	}
	if c.InsecureSkipVerify || c.ServerName != "" {
		return c
	}
	hosts := make([]string, 0, len(endpoints))
	for _, e := range endpoints {
		hosts = append(hosts, e.host)
	}
	roots := c.RootCAs
	c.InsecureSkipVerify = true // VerifyConnection does it instead
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("rabbitmq: the broker sent no certificate")
		}
		opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
		for _, cert := range s.PeerCertificates[1:] {
			opts.Intermediates.AddCert(cert)
		}
		var err error
		for _, host := range hosts {
			opts.DNSName = host
			if _, err = s.PeerCertificates[0].Verify(opts); err == nil {
				return nil
			}
		}
		return err
	}
	return c
}
