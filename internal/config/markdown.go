package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Markdown is the documentation page of all keys.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Configuration

<!-- Generated from the key table in internal/config. Do not edit: run "go test ./internal/config -run TestDocumentation -update". -->

A value comes from the first of: a flag, the environment, the YAML file of ` + "`--config`" + `, the default.
A key ` + "`a.b.c`" + ` is ` + "`c`" + ` in section ` + "`b`" + ` of section ` + "`a`" + ` of the file, and the variable ` + "`AETHER_A_B_C`" + ` of the environment,
where an empty variable counts as not set and a list is written with commas.

Unknown keys and variables are errors, and all problems are reported at once: ` + "`gateway config check`" + ` finds them without starting
anything, ` + "`gateway config print`" + ` shows every value, where it came from, and no password.

Durations are written as ` + "`250ms`, `20s`, `1h30m`, `7d`" + `; sizes as bytes, or with ` + "`KB`, `MB`, `GB`" + ` (1000) or ` + "`KiB`, `MiB`, `GiB`" + ` (1024).

` + "`AETHER_ADDR`, `AETHER_TOKEN`, `AETHER_CA`, `AETHER_CERT` and `AETHER_KEY`" + ` belong to the client commands (` + "`gateway send`, `gateway connect`" + `) and configure no gateway.

| key | type | default | range | meaning |
| --- | --- | --- | --- | --- |
`)
	for i := range table {
		k := &table[i]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.Name, k.Type, k.defaultCell(), k.rangeCell(), k.docCell())
	}
	b.WriteString(bounds)
	b.WriteString(`
## A file for ` + "`serve`" + `

` + "```yaml\n" + Example + "```\n")
	return b.String()
}

// bounds are those of the protocol, which no key changes.
const bounds = `
## Bounds without a key

What clients may rely on, the same on every gateway:

| what | at most |
| --- | --- |
| a frame | 4 MiB; a larger one ends the stream |
| an address | 256 characters, 128 bytes in a segment |
| a message id, a request id | 64 bytes, 128 bytes |
| the metadata of a message | 64 keys, 16 KiB in all |
| a subject | 256 bytes, 20 segments |
| a metric | 1,024 entries, 64 metadata keys |
| single acknowledgements in a frame | 10,000 |
| a token | 8 KiB |
| sends of one session that wait for a note or for the log to come back | 8,192, 8 MiB; further ones are refused, retryable |
`

// Example is a complete file for serve, checked by a test.
const Example = `grpc_addr: 0.0.0.0:50051
http_addr: 0.0.0.0:8080
instance_id: gw-1

postgres:
  url: postgres://aether:secret@db.internal:5432/aether
redis:
  url: redis://:secret@redis.internal:6379
rabbitmq:
  stream_url:
    - rabbitmq-stream://aether:secret@mq-1.internal:5552/%2f
    - rabbitmq-stream://aether:secret@mq-2.internal:5552/%2f
jwt:
  key_file: [/etc/aether/signing.hs256]

streams:
  retention:
    max_age: 14d
    max_bytes: 50GiB
  placement:
    - {prefix: metric}
    - {prefix: ag, workspace: imports}
`

func (k *Key) defaultCell() string {
	text := code(k.Default)
	if k.DevDefault != "" {
		text += ", in `dev` " + code(k.DevDefault)
	}
	return text
}

func code(s string) string {
	if s == "" {
		return "none"
	}
	return "`" + s + "`"
}

func (k *Key) rangeCell() string {
	var show func(int64) string
	switch k.Type {
	case TypeInt:
		show = func(n int64) string { return strconv.FormatInt(n, 10) }
	case TypeSize:
		show = func(n int64) string { return Size(n).String() }
	case TypeDuration:
		show = func(n int64) string { return FormatDuration(time.Duration(n)) }
	case TypeString:
		if len(k.Values) > 0 {
			return "`" + strings.Join(k.Values, "`, `") + "`"
		}
		return ""
	default:
		return ""
	}
	text := show(k.Min) + " – " + show(k.Max)
	if k.Auto {
		text += ", or `auto`"
	}
	if k.ZeroOff {
		text = "0, " + text
	}
	return text
}

func (k *Key) docCell() string {
	text := k.Doc
	if k.Required != "" {
		text += " Required for `" + string(k.Required) + "`."
	}
	if k.Flag != "" {
		text += " Flag `" + k.Flag + "`."
	}
	if k.Only != "" {
		text += " Only for `" + string(k.Only) + "`."
	}
	if k.Later != "" {
		text += " *No effect yet: " + k.Later + ".*"
	}
	return text
}
