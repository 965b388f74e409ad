package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// passes returns how often a gateway has opened the log for who was behind. It
// reports false if the gateway cannot be asked: a baseline, or one in a child
// of this program, which has no operators' port.
func (s *site) passes(ctx context.Context, system string) (uint64, bool) {
	text, ok := s.scrape(ctx, system)
	if !ok {
		return 0, false
	}
	v, err := metric(text, "aether_catch_ups_total")
	return uint64(v), err == nil
}

// scrape returns a gateway's metrics, if it can be asked.
func (s *site) scrape(ctx context.Context, system string) ([]byte, bool) {
	c := s.gateways[system]
	if c == nil {
		return nil, false
	}
	log, err := os.ReadFile(c.log)
	if err != nil {
		return nil, false
	}
	addr := opsAddr(log)
	if addr == "" {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", http.NoBody)
	if err != nil {
		return nil, false
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	response, err := client.Do(request)
	if err != nil {
		return nil, false
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return body, err == nil
}

// counting runs f, and then tells the outcome how often the gateway has opened
// the log meanwhile, if it can be asked.
func (s *site) counting(ctx context.Context, system string, o *outcome, f func() error) error {
	before, counted := s.passes(ctx, system)
	if err := f(); err != nil || !counted {
		return err
	}
	var after uint64
	after, o.Counted = s.passes(ctx, system)
	o.Passes = after - min(before, after)
	return nil
}

// opsAddr finds in a gateway's log, in JSON, where its operators' port is; ""
// if it has none.
func opsAddr(log []byte) string {
	scanner := bufio.NewScanner(bytes.NewReader(log))
	for scanner.Scan() {
		var line struct{ Msg, Ops string }
		if json.Unmarshal(scanner.Bytes(), &line) == nil && line.Msg == "serving" && line.Ops != "off" {
			return line.Ops
		}
	}
	return ""
}

// metric finds a metric without labels in the text that Prometheus reads.
func metric(text []byte, name string) (float64, error) {
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name+" ")
		if !ok {
			continue
		}
		words := strings.Fields(rest) // the value, and perhaps a time
		if len(words) == 0 {
			break
		}
		return strconv.ParseFloat(words[0], 64)
	}
	return 0, fmt.Errorf("bench: there is no metric %s", name)
}
