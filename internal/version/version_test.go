package version

import (
	"runtime/debug"
	"testing"
)

func TestIdentify(t *testing.T) {
	t.Parallel()
	info := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0a1b2c3"}
	modified := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for name, test := range map[string]struct {
		version, commit string
		info            *debug.BuildInfo
		want            identity
	}{
		"linker":            {"v1.2.3", "fedcba9", info("v9.9.9", revision), identity{"v1.2.3", "fedcba9"}},
		"go install":        {"", "", info("v1.2.3"), identity{"v1.2.3", unknown}},
		"go build":          {"", "", info("(devel)", revision), identity{"devel", "0a1b2c3"}},
		"go build, changed": {"", "", info("(devel)", revision, modified), identity{"devel", "0a1b2c3-dirty"}},
		"nothing recorded":  {"", "", info(""), identity{"devel", unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := identify(test.version, test.commit, test.info); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestString(t *testing.T) {
	t.Parallel()
	if got, want := String(), Version()+" ("+Commit()+")"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
