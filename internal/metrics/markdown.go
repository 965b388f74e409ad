package metrics

import (
	"fmt"
	"strings"
)

// Markdown is the documentation page of all metrics.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Metrics

<!-- Generated from the table in internal/metrics. Do not edit: run "go test ./internal/metrics -run TestDocumentation -update". -->

Served as ` + "`/metrics`" + ` on the operators' port (` + "`ops_addr`" + `), under ` + "`gateway dev`" + ` on the HTTP port. Labels have the values below and no
others, so that the number of series does not depend on what clients do. The usual ` + "`go_*` and `process_*`" + ` metrics come with them.

| metric | type | meaning | label |
| --- | --- | --- | --- |
`)
	for _, f := range Families() {
		label := ""
		if f.Label != "" {
			label = "`" + f.Label + "`"
		}
		if len(f.Values) > 0 {
			label += ": `" + strings.Join(f.Values, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Type, f.Help, label)
	}
	return b.String()
}
