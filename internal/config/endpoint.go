package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// Off turns an optional listener off.
const Off = "off"

// parseListen checks HOST:PORT, where HOST may be empty for every interface
// and port 0 picks a free one.
func parseListen(s string) (string, error) {
	s = strings.TrimSpace(s)
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", fmt.Errorf("%q is no listen address; write HOST:PORT such as 127.0.0.1:50051", s)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("%q: the port must be a number from 0 to 65535", s)
	}
	if strings.ContainsAny(host, " \t/") {
		return "", fmt.Errorf("%q: the host is malformed", s)
	}
	return s, nil
}

// parseURL checks the form of a service's URL. Its errors never contain the
// value, not even a part of it: it holds a password.
func parseURL(s string, schemes []string) (string, error) {
	s = strings.TrimSpace(s)
	accepted := strings.Join(schemes, ":// or ")
	u, err := url.Parse(s)
	if err != nil {
		return "", fmt.Errorf("is no URL (not shown, it may hold a password); write %s, and escape special characters of the password with %%", urlForm(schemes[0]))
	}
	for _, scheme := range schemes {
		if u.Scheme != scheme {
			continue
		}
		if u.Host == "" && u.Query().Get("host") == "" {
			return "", errors.New("names no host")
		}
		return s, nil
	}
	if u.Scheme == "" || u.Host == "" {
		return "", fmt.Errorf("does not begin with %s://", accepted)
	}
	return "", fmt.Errorf("begins with %s://; accepted is %s://", u.Scheme, accepted)
}

// urlForm is how a URL of the scheme is written.
func urlForm(scheme string) string {
	if scheme == "redis" {
		return "redis://[USER:PASSWORD@]HOST:PORT[/DB]"
	}
	return scheme + "://USER:PASSWORD@HOST:PORT/NAME"
}

const redacted = "***"

// RedactURL returns the URL with everything secret in it replaced. What does
// not parse is not shown at all.
func RedactURL(s string) string {
	if s == "" {
		return ""
	}
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || u.Host == "" && u.User == nil && !strings.HasPrefix(u.Path, "/") {
		return "(unreadable, not shown)"
	}
	user := ""
	if u.User != nil {
		user = url.PathEscape(u.User.Username())
		if _, has := u.User.Password(); has {
			user += ":" + redacted
		}
		user += "@"
	}
	query := ""
	if u.RawQuery != "" {
		// A password may also be a parameter; which, only the driver knows.
		keys := make([]string, 0, 4)
		for _, pair := range strings.Split(u.RawQuery, "&") {
			k, v, _ := strings.Cut(pair, "=")
			switch k {
			case "sslmode", "host", "port", "application_name", "connect_timeout", "search_path":
			default:
				v = redacted
			}
			keys = append(keys, k+"="+v)
		}
		query = "?" + strings.Join(keys, "&")
	}
	return u.Scheme + "://" + user + u.Host + u.EscapedPath() + query
}
