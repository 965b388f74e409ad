// Package version says which build of the gateway this is.
//
// It imports nothing of ours, so that every package may ask.
package version

import (
	"runtime/debug"
	"sync"
)

// What the linker was told, as `make build` does:
//
//	-ldflags "-X github.com/aether-gateway/gateway/internal/version.version=v1.2.3"
var (
	version string
	commit  string
)

// unknown stands for what neither the linker nor the Go command recorded.
const unknown = "unknown"

// Version returns the release, "v1.2.3" or "v1.2.3-4-g0a1b2c3" between
// releases; "devel" for a build that nobody named.
func Version() string { return build().version }

// Commit returns the revision that was built, with "-dirty" appended if it had
// been changed; "unknown" if nobody recorded it.
func Commit() string { return build().commit }

// String returns both, for logs and `gateway version`.
func String() string { return Version() + " (" + Commit() + ")" }

type identity struct{ version, commit string }

var build = sync.OnceValue(func() identity {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return identify(version, commit, info)
})

// identify prefers what the linker was told to what the Go command recorded.
func identify(version, commit string, info *debug.BuildInfo) identity {
	if version == "" {
		version = info.Main.Version
	}
	if version == "" || version == "(devel)" {
		version = "devel"
	}
	if commit == "" {
		commit = recorded(info, "vcs.revision")
		if commit != "" && recorded(info, "vcs.modified") == "true" {
			commit += "-dirty"
		}
	}
	if commit == "" {
		commit = unknown
	}
	return identity{version: version, commit: commit}
}

func recorded(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
