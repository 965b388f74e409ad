package main

import (
	"context"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/acl"
)

func TestRulesCell(t *testing.T) {
	t.Parallel()
	st, err := openRules()
	if err != nil {
		t.Fatal(err)
	}
	// The figures are of decisions that find something, and of such that do not.
	seen := map[acl.Reason]bool{}
	for _, a := range st.to {
		few, many := acl.DecideWith(st.who, a, nil, st.few), acl.DecideWith(st.who, a, nil, st.many)
		if few != many {
			t.Errorf("%s: %+v with few rules, %+v with many", a, few, many)
		}
		seen[few.Reason] = true
	}
	if !seen[acl.ReasonNone] || !seen[acl.ReasonRule] || !seen[acl.ReasonKind] {
		t.Errorf("reasons %v", seen)
	}
	o, err := st.run(context.Background(), nameRabbitMQ, 0)
	if err != nil || o.FewRules <= 0 || o.ManyRules <= 0 || !strings.Contains(o.brief(), "rules") {
		t.Errorf("%+v, %v", o, err)
	}
	r := report{Results: []result{{Cell: rulesCell(), Rounds: map[string][]outcome{nameRabbitMQ: {{FewRules: 100, ManyRules: 150}}}}}}
	rows := r.rows()
	if len(rows) != 1 || rows[0].Ratio != 1.5 || rows[0].verdict() != "ok" {
		t.Errorf("%+v", rows)
	}
}
