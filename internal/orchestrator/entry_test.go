package orchestrator

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/store"
)

func TestCheckEntry(t *testing.T) {
	many := map[string]string{}
	for i := range maxParams + 1 {
		many[fmt.Sprint("p", i)] = "v"
	}
	large := map[string]string{}
	for i := range 5 {
		large[fmt.Sprint("p", i)] = strings.Repeat("v", maxParamValue)
	}
	for name, c := range map[string]struct {
		change func(*store.Implementation)
		ok     bool
	}{
		"good":                     {func(*store.Implementation) {}, true},
		"without a workspace":      {func(i *store.Implementation) { i.Workspace = "" }, true},
		"no name":                  {func(i *store.Implementation) { i.Name = "" }, false},
		"a name with a star":       {func(i *store.Implementation) { i.Name = "a*" }, false},
		"a name of two segments":   {func(i *store.Implementation) { i.Name = "a::b" }, false},
		"a reserved workspace":     {func(i *store.Implementation) { i.Workspace = "receiver0" }, false},
		"no profile":               {func(i *store.Implementation) { i.Profile = "" }, false},
		"every profile":            {func(i *store.Implementation) { i.Profile = AnyProfile }, false},
		"the token":                {func(i *store.Implementation) { i.Params = map[string]string{AuthToken: "x"} }, false},
		"the token, upper case":    {func(i *store.Implementation) { i.Params = map[string]string{"AUTH_TOKEN": "x"} }, false},
		"the token is overridable": {func(i *store.Implementation) { i.Overridable = []string{AuthToken} }, false},
		"a parameter without name": {func(i *store.Implementation) { i.Params = map[string]string{"": "x"} }, false},
		"a name with a space":      {func(i *store.Implementation) { i.Params = map[string]string{"a b": "x"} }, false},
		"a value not UTF-8":        {func(i *store.Implementation) { i.Params = map[string]string{"a": "\xff"} }, false},
		"a long value":             {func(i *store.Implementation) { i.Params = map[string]string{"a": strings.Repeat("x", maxParamValue+1)} }, false},
		"many":                     {func(i *store.Implementation) { i.Params = many }, false},
		"large":                    {func(i *store.Implementation) { i.Params = large }, false},
		"many overridable": {func(i *store.Implementation) {
			for name := range maps.Keys(many) {
				i.Overridable = append(i.Overridable, name)
			}
		}, false},
	} {
		i := store.Implementation{Name: "echo", Workspace: "w", Profile: "process", Params: map[string]string{"model": "größer"}, Overridable: []string{"model"}}
		c.change(&i)
		if err := checkEntry(&i); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrEntry) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckOverrides(t *testing.T) {
	i := &store.Implementation{Name: "echo", Params: map[string]string{"model": "a", "size": "1"}, Overridable: []string{"model"}}
	for name, ok := range map[string]bool{"model": true, "size": false, "other": false, AuthToken: false} {
		if err := CheckOverrides(i, map[string]string{name: "x"}); (err == nil) != ok || err != nil && !errors.Is(err, ErrEntry) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestShownHidesSecrets(t *testing.T) {
	got := Shown(map[string]string{"model": "m", "OPENAI_API_KEY": "s3cret", "db_password": "s3cret", "auth_token": "s3cret"})
	if got["model"] != "m" || strings.Contains(fmt.Sprint(got), "s3cret") {
		t.Errorf("%v", got)
	}
}
