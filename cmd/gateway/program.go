package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/aether-gateway/gateway/internal/config"
)

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// program is what a process has from outside, so that tests can stand in for
// it.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	signals        <-chan os.Signal
	// path is how the program was called, for hints.
	path string
}

// name is what to type to call the program again.
func (p *program) name() string {
	if strings.ContainsRune(p.path, os.PathSeparator) {
		return p.path
	}
	return "gateway"
}

// commands is the command line.
type commands struct {
	Dev     devCmd     `cmd:"" help:"Run a gateway with everything in one directory: no other process, no configuration."`
	Serve   serveCmd   `cmd:"" help:"Run a gateway on RabbitMQ and PostgreSQL."`
	Migrate migrateCmd `cmd:"" help:"Bring the database's schema up to date, or back."`
	Token   tokenCmd   `cmd:"" help:"Make and read credentials."`
	Config  configCmd  `cmd:"" help:"Check and show a configuration without starting anything."`
	Health  healthCmd  `cmd:"" help:"Ask a gateway on this machine whether it is ready: exits 0 if it is."`
	Send    sendCmd    `cmd:"" help:"Send one message."`
	Connect connectCmd `cmd:"" help:"Be a principal: print what arrives and acknowledge it, so that it does not come again."`

	Sessions  sessionsCmd  `cmd:"" help:"See who is connected, and end sessions."`
	Tail      tailCmd      `cmd:"" help:"Watch what is stored for an address, and take nothing."`
	Where     whereCmd     `cmd:"" help:"Say what became of a message: stored, delivered, acked, expired, refused, given up or skipped."`
	Topics    topicsCmd    `cmd:"" help:"See how much is sent to addresses, and how much waits."`
	Mail      mailCmd      `cmd:"" help:"See and move what waits for an identity."`
	Dead      deadCmd      `cmd:"" name:"dead-letters" help:"See the messages that were given up, and send them again or let them go."`
	Workspace workspaceCmd `cmd:"" help:"Create and delete workspaces, and say who is in them."`
	Key       keyCmd       `cmd:"" help:"Make, list and revoke API keys."`
	Rule      ruleCmd      `cmd:"" help:"Say who may do what, beyond what the kinds of principals may."`
	Tasks     tasksCmd     `cmd:"" help:"See how tasks stand, follow one, and have it done again or end it."`
	Grant     grantCmd     `cmd:"" help:"Say who may act for whom."`
	Impl      implCmd      `cmd:"" help:"Say which agents and tasks are started when mail waits for them, and how."`
	Audit     auditCmd     `cmd:"" help:"See what was recorded: connections, refusals, what operators did."`

	Bench benchCmd `cmd:"" help:"Measure a running gateway by the messages that it lets through."`

	Version versionCmd `cmd:"" help:"Print the version."`
}

// usageError is a command line that makes no sense: exit code 2.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// exited carries kong's wish to exit, for --help, out of its parser.
type exited struct{ code int }

// run is the whole program; it returns the exit code.
func run(args []string, p *program) (code int) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(exited)
			if !ok {
				panic(r)
			}
			code = e.code
		}
	}()
	var c commands
	parser, err := kong.New(&c,
		kong.Name("gateway"),
		kong.Description("Aether Gateway: messages between agents, tasks, users and services, over one gRPC stream each."),
		kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(code int) { panic(exited{code}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		panic("gateway: command table: " + err.Error())
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return p.fail(usageError{err.Error()}, commandOf(err))
	}
	parsed.BindTo(context.Background(), (*context.Context)(nil))
	if err := parsed.Run(p); err != nil {
		return p.fail(err, parsed.Selected())
	}
	return exitOK
}

// commandOf is the command in whose arguments the parser found a mistake, nil
// if it knows none.
func commandOf(err error) *kong.Node {
	var parse *kong.ParseError
	if !errors.As(err, &parse) || parse.Context == nil {
		return nil
	}
	var node *kong.Node
	for _, step := range parse.Context.Path {
		if step.Command != nil {
			node = step.Command
		}
	}
	return node
}

// fail prints an error of a command, nil for the program's, and returns its
// exit code.
func (p *program) fail(err error, command *kong.Node) int {
	var (
		usage    usageError
		problems config.Problems
		silent   silentError
	)
	switch {
	case errors.As(err, &silent):
	case errors.As(err, &usage):
		help := p.name()
		if command != nil {
			help += strings.TrimPrefix(command.FullPath(), "gateway")
		}
		fmt.Fprintf(p.stderr, "gateway: %s\nTry `%s --help`.\n", lines(usage.text), help)
		return exitUsage
	case errors.As(err, &problems):
		fmt.Fprintf(p.stderr, "gateway: the configuration cannot be used:\n")
		for _, problem := range problems {
			fmt.Fprintf(p.stderr, "  %s\n", lines(problem.String()))
		}
	default:
		fmt.Fprintf(p.stderr, "gateway: %s\n", lines(err.Error()))
	}
	return exitFailed
}

// silentError fails a command that has said why already.
type silentError struct{}

func (silentError) Error() string { return "failed" }

// getenv is a variable of the program's environment, "" if it is not set.
func (p *program) getenv(name string) string {
	value := ""
	for _, entry := range p.environ {
		if rest, ok := strings.CutPrefix(entry, name+"="); ok {
			value = rest
		}
	}
	return value
}

// first is the first of the texts that is not empty.
func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
