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

| metric | type | meaning | labels |
| --- | --- | --- | --- |
`)
	for _, f := range Families() {
		labels := make([]string, len(f.Labels))
		for i, l := range f.Labels {
			labels[i] = "`" + l.Name + "`"
			if len(l.Values) > 0 {
				labels[i] += ": " + strings.Join(l.Values, ", ")
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Type, f.Help, strings.Join(labels, "; "))
	}
	return b.String()
}
