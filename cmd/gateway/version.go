package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the build (-ldflags "-X main.version=v1.2.3").
var version = ""

type versionCmd struct{}

func (versionCmd) Run(p *program) error {
	_, err := fmt.Fprintf(p.stdout, "gateway %s (%s, %s/%s)\n", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// versionText is the stamped version, else what the toolchain knows.
func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	text, revision, dirty := info.Main.Version, "", ""
	if text != "" && text != "(devel)" {
		return text
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = "-" + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	return "devel" + revision + dirty
}
