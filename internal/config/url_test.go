package config

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var (
	postgresSchemes = []string{"postgres", "postgresql"}
	redisSchemes    = []string{"redis", "rediss"}
	rabbitSchemes   = []string{"rabbitmq-stream", "rabbitmq-stream+tls"}
)

func TestURLs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		schemes []string
		url     string
		says    string // "" if it is good
	}{
		{redisSchemes, "redis://h", ""},
		{redisSchemes, "redis://u:pw-hidden@h:6379/15", ""},
		{redisSchemes, "rediss://:pw%2Chidden@h:6379/?skip_verify=true", ""},
		{redisSchemes, "redis://[::1]:6379/0", ""},
		{redisSchemes, "redis://:pw,hidden@h/0", ""},
		{redisSchemes, "redis://h:6379/aether", "number of a database"},
		{redisSchemes, "redis://h:6379/0/1", "number of a database"},
		{redisSchemes, "redis://h:6379/-1", "number of a database"},
		{redisSchemes, "redis://h:6379/?db=x", "number of a database"},
		{redisSchemes, "redis://:pw-hidden@a:1,b:2/0", "several hosts"},
		{redisSchemes, "redis://:pw-hidden@a,b/0", "several hosts"},
		{redisSchemes, "redis://:pw-hidden@h:65536/0", "1 to 65535"},
		{redisSchemes, "redis://:pw-hidden@h:0/0", "1 to 65535"},
		{redisSchemes, "redis://:pw-hidden@h:99999999999999999999/0", "1 to 65535"},
		{redisSchemes, "redis://:6379", "no host"},
		{redisSchemes, "redis:h", "no host"},
		{redisSchemes, "redis://h/0#pw-hidden", "%23"},
		{redisSchemes, "redis://h/?pool=pw-hidden", "parameter that is not known"},
		{redisSchemes, "http://h:1", "begins with http://"},
		{postgresSchemes, "postgres://u:pw-hidden@h:5432/d?sslmode=verify-full", ""},
		{postgresSchemes, "postgresql:///d?host=/run/postgresql&port=5433", ""},
		{postgresSchemes, "postgres://u:pw-hidden@h/d?sslmode=on", "sslmode; accepted are disable"},
		{postgresSchemes, "postgres://u:pw-hidden@h/d?sslmode=", "sslmode; accepted are disable"},
		{postgresSchemes, "postgres://u:pw-hidden@a:1,b:2/d", "several hosts"},
		{postgresSchemes, "postgres:///d?host=a,b", "several hosts"},
		{postgresSchemes, "postgres://h:70000/d", "1 to 65535"},
		{postgresSchemes, "postgres:///d?host=h&port=70000", "1 to 65535"},
		{postgresSchemes, "postgres://u:pw-hidden@h/d?a=%zz", "cannot be read"},
		{rabbitSchemes, "rabbitmq-stream://u:pw-hidden@h:5552/%2f", ""},
		{rabbitSchemes, "rabbitmq-stream+tls://h", ""},
		{rabbitSchemes, "rabbitmq-stream://u:pw-hidden@h:65536/%2f", "1 to 65535"},
		{rabbitSchemes, "amqp://u:pw-hidden@h", "begins with amqp://"},
	} {
		got, err := parseURL(" "+tt.url+" ", tt.schemes)
		switch {
		case tt.says == "" && (err != nil || got != tt.url):
			t.Errorf("%s: %q, %v", tt.url, got, err)
		case tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)):
			t.Errorf("%s: %v, want %q", tt.url, err, tt.says)
		}
		if err != nil && strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: the password is shown: %v", tt.url, err)
		}
	}
}

// A password may be kept in a file of its own, apart from the URL.
func TestPasswordFiles(t *testing.T) {
	t.Parallel()
	file := func(content string) string {
		path := filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("p@ss:/w%rd,#?\r\n")
	environ := []string{
		"AETHER_POSTGRES_URL=postgres://u@db:5432/aether?sslmode=disable", "AETHER_POSTGRES_PASSWORD_FILE=" + good,
		"AETHER_RABBITMQ_STREAM_URL=rabbitmq-stream://u@a/%2f,rabbitmq-stream://u@b/%2f", "AETHER_RABBITMQ_PASSWORD_FILE=" + good,
		"AETHER_REDIS_URL=redis://h/3", "AETHER_REDIS_PASSWORD_FILE=" + good, "AETHER_JWT_KEY_FILE=k",
	}
	c, err := Load(Options{Mode: Serve, Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range append([]string{c.Postgres.URL, c.Redis.URL}, c.RabbitMQ.StreamURLs...) {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if password, _ := u.User.Password(); password != "p@ss:/w%rd,#?" {
			t.Errorf("%s: the password is %q", text, password)
		}
	}
	if want := "rabbitmq-stream://u:p%40ss%3A%2Fw%25rd,%23%3F@b/%2f"; c.RabbitMQ.StreamURLs[1] != want {
		t.Errorf("got %s, want %s", c.RabbitMQ.StreamURLs[1], want)
	}
	for _, e := range c.Entries() {
		if strings.Contains(e.Value, "w%rd") || strings.Contains(e.Value, "w%25rd") {
			t.Errorf("shown by print: %v", e)
		}
	}
	// In dev the services are not used, and their passwords not read.
	if _, err := Load(Options{Mode: Dev, Environ: []string{"AETHER_REDIS_URL=redis://h", "AETHER_REDIS_PASSWORD_FILE=/nowhere"}}); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct{ environ, says string }{
		{"AETHER_REDIS_PASSWORD_FILE=/nowhere/at/all", "redis.password_file (environment AETHER_REDIS_PASSWORD_FILE): open /nowhere/at/all: no such file"},
		{"AETHER_REDIS_PASSWORD_FILE=" + file("\n"), "is empty"},
		{"AETHER_REDIS_PASSWORD_FILE=" + file("hidden\nsecond"), "more than one line"},
		{"AETHER_REDIS_PASSWORD_FILE=" + file("hidden\x00"), "more than one line"},
		{"AETHER_REDIS_PASSWORD_FILE=" + file(strings.Repeat("hidden", 1000)), "too large for a password"},
		{"AETHER_REDIS_PASSWORD_FILE=" + t.TempDir(), "is a directory"},
		{"AETHER_REDIS_PASSWORD_FILE=a\nb", "is no path of a file"},
		{"AETHER_REDIS_URL=redis://:hidden@h", "redis.url holds a password, too"},
		{"AETHER_REDIS_URL=", "redis.url is not"},
		{"AETHER_POSTGRES_URL=postgres://h/d", "postgres.url names no user"},
		{"AETHER_POSTGRES_URL=", "postgres.url: must be set"},
	} {
		name, _, _ := strings.Cut(tt.environ, "=")
		others := slices.DeleteFunc(slices.Clone(environ), func(s string) bool { return strings.HasPrefix(s, name+"=") })
		_, err := Load(Options{Mode: Serve, Environ: append(others, tt.environ)})
		var ps Problems
		if !errors.As(err, &ps) || len(ps) != 1 || !strings.Contains(ps[0].String(), tt.says) || strings.Contains(ps[0].String(), "hidden") {
			t.Errorf("%s: %v, want %q", tt.environ, err, tt.says)
		}
	}
}

// FuzzURL: whatever is taken for a URL is one, and no refusal repeats it.
func FuzzURL(f *testing.F) {
	for _, s := range []string{"redis://:hidden@h:1/0", "redis://a,b", "postgres://u:hidden@h/d?sslmode=x", "postgres:///d?host=h", "rabbitmq-stream://[::1]:5/%2f", "redis:h", "://", "redis://hidden@%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, schemes := range [][]string{postgresSchemes, redisSchemes, rabbitSchemes} {
			got, err := parseURL(s, schemes)
			if err == nil {
				if _, err := url.Parse(got); err != nil {
					t.Errorf("%q is taken: %v", got, err)
				}
			} else if scheme, _, _ := strings.Cut(s, ":"); strings.Contains(err.Error(), "hidden") && !strings.Contains(strings.ToLower(scheme), "hidden") {
				t.Errorf("%q is shown: %v", s, err)
			}
		}
	})
}

func FuzzPassword(f *testing.F) {
	f.Add([]byte("secret\n"))
	f.Add([]byte("a@b:c/d\r\n"))
	f.Add([]byte("\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		password, err := parsePassword(data)
		if err != nil {
			return
		}
		text := "redis://h/0"
		if err := setPassword(byName["redis.url"], &text, password); err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := u.User.Password(); got != password {
			t.Errorf("%q became %q", password, got)
		}
	})
}
