package config

import (
	"strings"
	"time"
)

// Type is the kind of value that a key takes.
type Type string

// The types. Each is parsed, checked and printed in one way.
const (
	TypeString    Type = "string"
	TypeListen    Type = "listen address"
	TypeURL       Type = "URL"
	TypeURLs      Type = "list of URLs"
	TypeFile      Type = "file"
	TypeKeyFiles  Type = "list of files"
	TypeBool      Type = "true or false"
	TypeInt       Type = "number"
	TypeDuration  Type = "duration"
	TypeSize      Type = "size"
	TypePlacement Type = "list of rules"
	TypeEntries   Type = "list of entries"
	TypeTopics    Type = "list of topics"
	TypeRoutes    Type = "list of routes"
)

// Key describes one configuration key.
type Key struct {
	// Name is dotted: a.b.c is c in section b of section a.
	Name string
	Type Type
	// Default is the default as text, in the form in which it could be set;
	// DevDefault, if not "", is the default of dev.
	Default, DevDefault string
	// Min and Max bound numbers, sizes (bytes) and durations (nanoseconds),
	// both inclusive; Max the bytes of a string, 0 for 80. ZeroOff lets 0 pass as "no limit".
	Min, Max int64
	ZeroOff  bool
	// Auto lets the word auto pass, which is stored as -1: the value follows
	// from others.
	Auto bool
	// Values lists what a string may be, empty for anything.
	Values []string
	// Schemes lists what a URL may begin with.
	Schemes []string
	// PasswordOf names the key whose URL gets its password from the file that
	// this key names.
	PasswordOf string
	// Only is the mode in which the key has an effect, "" for both.
	Only Mode
	// Required is the mode in which the key must be set.
	Required Mode
	// Flag is the command-line flag that sets the key, "" for none.
	Flag string
	// Later marks a key that is accepted and checked and has no effect in this
	// version; the text says what happens instead.
	Later string
	// Doc is what the key means: one or two sentences.
	Doc string

	field func(*Config) any
}

const envPrefix = "AETHER_"

// Env is the environment variable that sets the key.
func (k *Key) Env() string { return EnvName(k.Name) }

// EnvName is the environment variable that sets the key of that name.
func EnvName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// DefaultIn is the default in a mode, as text.
func (k *Key) DefaultIn(m Mode) string {
	if m == Dev && k.DevDefault != "" {
		return k.DevDefault
	}
	return k.Default
}

// Secret reports whether values of the key may hold a password.
func (k *Key) Secret() bool { return k.Type == TypeURL || k.Type == TypeURLs }

// example is a value of a key that takes a list of several options each, "" for
// other keys.
func (k *Key) example() string {
	switch k.Type {
	case TypeTopics:
		return topicExample
	case TypeRoutes:
		return routeExample
	}
	return ""
}

// hasEffect reports whether setting the key changes anything in a mode.
func (k *Key) hasEffect(m Mode) bool { return k.Later == "" && (k.Only == "" || k.Only == m) }

// Keys returns the table, in the order in which it is documented. The caller
// may change the returned slice.
func Keys() []Key {
	keys := make([]Key, len(table))
	copy(keys, table)
	return keys
}

var (
	byName = map[string]*Key{}
	byEnv  = map[string]*Key{}
	names  []string
)

func init() {
	for i := range table {
		k := &table[i]
		byName[k.Name], byEnv[k.Env()] = k, k
		names = append(names, k.Name)
	}
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40

	// MaxPayloadLimit keeps a payload and its envelope within one broker frame.
	MaxPayloadLimit = 1_000_000
)

func seconds(n int64) int64 { return n * int64(time.Second) }
