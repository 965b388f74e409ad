package metrics

// Family describes one metric.
type Family struct {
	Name, Type, Help string
	// Label is the metric's only label, "" for none. Values are all that it
	// takes.
	Label  string
	Values []string
}

func (f Family) labels() []string {
	if f.Label == "" {
		return nil
	}
	return []string{f.Label}
}

// Families lists all metrics but those of Go and the process.
func Families() []Family {
	all := make([]Family, 0, len(table)+1)
	for _, m := range table {
		all = append(all, m.Family)
	}
	return append(all, build)
}

var build = Family{Name: "aether_build_info", Type: "gauge", Help: "Always 1; the label names the program's version.", Label: "version"}
