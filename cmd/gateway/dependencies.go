package main

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/aether-gateway/gateway/internal/config"
	"github.com/aether-gateway/gateway/internal/ops"
)

// logCheck is what the checks of the log's partitions are called, and the
// dependency that they belong to; other checks bear their dependency's name.
const logCheck = "log"

func partitionCheck(n int) string { return fmt.Sprintf("%s partition %d", logCheck, n) }

// upNow says of each dependency whether all its checks pass.
func upNow(results []ops.Result) map[string]bool {
	up := map[string]bool{}
	for _, r := range results {
		name, _, _ := strings.Cut(r.Name, " ")
		was, known := up[name]
		up[name] = r.Err == nil && (was || !known)
	}
	return up
}

// secrets are the passwords of the configuration's URLs, as they are and as
// they are written there.
func secrets(cfg *config.Config) []string {
	var list []string
	for _, text := range append([]string{cfg.Postgres.URL, cfg.Redis.URL}, cfg.RabbitMQ.StreamURLs...) {
		u, err := url.Parse(text)
		if err != nil || u.User == nil {
			continue
		}
		password, _ := u.User.Password()
		_, written, _ := strings.Cut(u.User.String(), ":")
		if password != "guest" { // RabbitMQ's own, which is no secret
			list = append(list, password, written)
		}
	}
	return list
}
