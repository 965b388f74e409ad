package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/aether-gateway/gateway/internal/config"
	"github.com/aether-gateway/gateway/internal/presence/redis"
	"github.com/aether-gateway/gateway/internal/store/postgres"
	"github.com/aether-gateway/gateway/internal/streams/rabbitmq"
)

// withURLProblems adds to the problems that loading has found what the parts
// themselves would refuse about their URLs. Keys with a problem are not judged
// again.
func withURLProblems(cfg *config.Config, err error) error {
	var problems config.Problems
	if cfg.Mode != config.Serve || err != nil && !errors.As(err, &problems) {
		return err
	}
	check := func(key string, set bool, refusal func() error) {
		for _, p := range problems {
			if p.Key == key {
				return
			}
		}
		if !set {
			return
		}
		if refused := refusal(); refused != nil {
			problems = append(problems, config.Problem{Key: key, Source: cfg.Source(key), Text: refused.Error()})
		}
	}
	check(onPostgres.key, cfg.Postgres.URL != "", func() error { return postgres.CheckURL(cfg.Postgres.URL) })
	check(onLog.key, len(cfg.RabbitMQ.StreamURLs) > 0, func() error { return rabbitmq.CheckURLs(cfg.RabbitMQ.StreamURLs) })
	check(onRedis.key, cfg.Redis.URL != "", func() error { return redis.CheckURL(cfg.Redis.URL) })
	if len(problems) == 0 {
		return err
	}
	return problems
}

// containerSecrets is where container engines put secrets. Whoever can read
// there is in the container, whatever the files' modes are.
const containerSecrets = "/run/secrets/"

// exposedFile reports whether others on this machine may read or write a file
// with a secret. They may not if they cannot enter its directory.
func exposedFile(path string) bool {
	path = filepath.Clean(path)
	if strings.HasPrefix(path, containerSecrets) {
		return false
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o006 == 0 {
		return false
	}
	dir, err := os.Stat(filepath.Dir(path))
	return err != nil || dir.Mode().Perm()&0o001 != 0
}

// exposedPasswords notes the password files that others may read or write.
func exposedPasswords(cfg *config.Config) (notes config.Problems) {
	for _, f := range []struct{ key, path string }{
		{"postgres.password_file", cfg.Postgres.PasswordFile},
		{"rabbitmq.password_file", cfg.RabbitMQ.PasswordFile},
		{"redis.password_file", cfg.Redis.PasswordFile},
	} {
		if f.path != "" && cfg.Mode == config.Serve && exposedFile(f.path) {
			notes = append(notes, config.Problem{
				Key: f.key, Source: cfg.Source(f.key),
				Text: fmt.Sprintf("every user of this machine can read or change the password in %s: chmod 600 %s", f.path, f.path),
			})
		}
	}
	return notes
}
