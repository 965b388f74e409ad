package streams

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	maxStreams  = 4096
	maxRuleText = 1024
)

// Rule gives the addresses that it matches a stream of their own. Exactly one
// field is set. Both compare the address as text, byte by byte.
type Rule struct {
	// Equals matches one whole address.
	Equals string
	// HasPrefix matches every address that begins with it.
	HasPrefix string
}

func (r Rule) matches(address string) bool {
	if r.Equals != "" {
		return address == r.Equals
	}
	return r.HasPrefix != "" && strings.HasPrefix(address, r.HasPrefix)
}

// Placement maps addresses to partitions. It is fixed when a deployment is
// born (delivery rule C9): another one would look for mail in the wrong
// streams. The zero value is one partition for everything.
//
// Partitions 0 to Partitions-1 share the addresses by hash; behind them comes
// one partition for each rule. Methods may be called concurrently as long as
// nobody changes the fields.
type Placement struct {
	// Partitions is over how many streams the addresses spread that no rule
	// matches; below 1 counts as 1.
	Partitions int
	// Rules are tried in order; the first match wins.
	Rules []Rule
}

func (p Placement) hashed() int { return max(p.Partitions, 1) }

// Of returns the partition of an address.
func (p Placement) Of(address string) int {
	for i := range p.Rules {
		if p.Rules[i].matches(address) {
			return p.hashed() + i
		}
	}
	return int(fnv1a(address) % uint64(p.hashed()))
}

// fnv1a is FNV-1a with 64 bits, here because hash/fnv allocates.
func fnv1a(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// Count returns how many partitions there are in all.
func (p Placement) Count() int { return p.hashed() + len(p.Rules) }

// StreamName returns the name of a partition's stream: short, and the same
// whatever the addresses in it are.
func (p Placement) StreamName(i int) string {
	if n := p.hashed(); i >= n {
		return fmt.Sprintf("aether.r%04d", i-n)
	}
	return fmt.Sprintf("aether.p%04d", i)
}

// DeadLetterStream is the name of the stream for messages that were given up
// (delivery rule S8). A driver has it behind the placement's partitions, as
// partition [Placement.Count].
const DeadLetterStream = "aether.dead"

// Fingerprint identifies the placement: two that place any address
// differently have different ones.
func (p Placement) Fingerprint() string {
	h := sha256.New()
	fmt.Fprintf(h, "fnv1a64\n%d\n", p.hashed())
	for _, r := range p.Rules {
		fmt.Fprintf(h, "%q %q\n", r.Equals, r.HasPrefix)
	}
	sum := hex.EncodeToString(h.Sum(nil)[:8])
	return "p" + strconv.Itoa(p.hashed()) + "-r" + strconv.Itoa(len(p.Rules)) + "-" + sum
}

// Validate reports everything that is wrong with the placement.
func (p Placement) Validate() error {
	var problems []error
	if p.Partitions < 1 {
		problems = append(problems, fmt.Errorf("streams: partitions must be at least 1, not %d", p.Partitions))
	}
	if p.Count() > maxStreams {
		problems = append(problems, fmt.Errorf("streams: at most %d partitions and rules, not %d", maxStreams, p.Count()))
		return errors.Join(problems...)
	}
	for i, r := range p.Rules {
		text := r.Equals + r.HasPrefix
		switch {
		case (r.Equals == "") == (r.HasPrefix == ""):
			problems = append(problems, fmt.Errorf("streams: placement rule %d must name either a whole address or a prefix", i))
			continue
		case len(text) > maxRuleText:
			problems = append(problems, fmt.Errorf("streams: placement rule %d is longer than %d bytes", i, maxRuleText))
			continue
		}
		for j, earlier := range p.Rules[:i] {
			shadowed := earlier.HasPrefix != "" && strings.HasPrefix(text, earlier.HasPrefix)
			if shadowed || (r.Equals != "" && earlier.Equals == r.Equals) {
				problems = append(problems, fmt.Errorf("streams: placement rule %d (%q) is never reached: rule %d takes its addresses", i, text, j))
				break
			}
		}
	}
	return errors.Join(problems...)
}
