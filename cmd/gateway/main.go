// Command gateway runs the gateway and talks to one.
//
// It parses flags, wires the packages of internal/ together, starts them and
// waits; behaviour lives in those packages.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// Two signals end the process: one to drain, one to exit at once.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(run(os.Args[1:], &program{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ(), signals: signals, path: os.Args[0],
	}))
}
