package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// The schemes with rules of their own.
const (
	schemePostgres = "postgres"
	schemeRedis    = "redis"
)

// parseURL checks a service's URL. Its errors never contain the value, not even
// a part of it that could belong to a password.
func parseURL(s string, schemes []string) (string, error) {
	s = strings.TrimSpace(s)
	accepted := strings.Join(schemes, ":// or ")
	if scheme, rest, ok := strings.Cut(s, "://"); ok && slices.Contains(schemes, scheme) && severalHosts(rest) {
		return "", errors.New("names several hosts; give one, which may be a name or a balancer that leads to whichever serves")
	}
	u, err := url.Parse(s)
	if err != nil {
		return "", fmt.Errorf("is no URL (not shown, it may hold a password); write %s, and escape special characters of the password with %%", urlForm(schemes[0]))
	}
	if !slices.Contains(schemes, u.Scheme) {
		if u.Scheme == "" || u.Host == "" {
			return "", fmt.Errorf("does not begin with %s://", accepted)
		}
		return "", fmt.Errorf("begins with %s://; accepted is %s://", u.Scheme, accepted)
	}
	if err := checkHost(u); err != nil {
		return "", err
	}
	switch schemes[0] {
	case schemePostgres:
		err = checkPostgres(u)
	case schemeRedis:
		err = checkRedis(u)
	}
	if err != nil {
		return "", err
	}
	return s, nil
}

// severalHosts reports whether what follows the scheme begins with more than one
// host. A comma in a password comes before the last @.
func severalHosts(rest string) bool {
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	return strings.Contains(rest[strings.LastIndexByte(rest, '@')+1:], ",")
}

func checkHost(u *url.URL) error {
	switch {
	case u.Opaque != "", u.Hostname() == "" && u.Query().Get("host") == "":
		return errors.New("names no host")
	case u.Fragment != "":
		return errors.New("holds a #, and what follows it would be ignored; in a password write %23")
	}
	return checkPort(u.Port())
}

func checkPort(port string) error {
	if port == "" {
		return nil
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("names a port that is not from 1 to 65535")
	}
	return nil
}

var sslModes = []string{"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}

// checkPostgres checks the parameters that are often wrong; package postgres
// knows the others.
func checkPostgres(u *url.URL) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("has parameters that cannot be read")
	}
	if mode := query.Get("sslmode"); query.Has("sslmode") && !slices.Contains(sslModes, mode) {
		return fmt.Errorf("has an unknown sslmode; accepted are %s", strings.Join(sslModes, ", "))
	}
	if strings.Contains(query.Get("host"), ",") {
		return errors.New("names several hosts; give one, which may be a name or a balancer that leads to whichever serves")
	}
	return checkPort(query.Get("port"))
}

// redisParameters are what a Redis URL may hold behind a question mark; others
// of the client's are settled by the gateway.
var redisParameters = []string{"db", "skip_verify"}

func checkRedis(u *url.URL) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("has parameters that cannot be read")
	}
	for name := range query {
		if !slices.Contains(redisParameters, name) {
			return fmt.Errorf("has a parameter that is not known; accepted are %s", strings.Join(redisParameters, " and "))
		}
	}
	for _, number := range []string{strings.TrimPrefix(u.Path, "/"), query.Get("db")} {
		if number == "" {
			continue
		}
		if _, err := strconv.ParseUint(number, 10, 16); err != nil {
			return errors.New("must end with the number of a database, such as /0, or nothing")
		}
	}
	return nil
}

// urlForm is how a URL of the scheme is written.
func urlForm(scheme string) string {
	if scheme == schemeRedis {
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
