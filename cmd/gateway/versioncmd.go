package main

import (
	"fmt"
	"runtime"

	"github.com/aether-gateway/gateway/internal/version"
)

type versionCmd struct{}

func (versionCmd) Run(p *program) error {
	_, err := fmt.Fprintf(p.stdout, "gateway %s %s %s/%s\n", version.String(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
