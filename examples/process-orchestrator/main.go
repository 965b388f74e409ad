// Command process-orchestrator starts agents as processes of this machine when
// mail waits for them. Which command an implementation is comes from its own
// command line, not from the gateway: nobody who can write to an agent chooses
// what is run here.
//
//	bin/gateway impl register --impl lazy --profile process
//	AETHER_TOKEN=$(bin/gateway token create --kind orchestrator --impl local --spec 1) \
//	  go run ./examples/process-orchestrator -worker lazy='go run ./examples/lazy'
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aether-gateway/gateway/client"
)

// workers are the commands, by implementation.
type workers map[string][]string

func (w workers) String() string { return "" }

func (w workers) Set(text string) error {
	name, command, ok := strings.Cut(text, "=")
	if words := strings.Fields(command); ok && name != "" && len(words) > 0 {
		w[name] = words
		return nil
	}
	return errors.New("write NAME=COMMAND")
}

// stopping is how long a process may take to end when it is asked to.
const stopping = 5 * time.Second

type orchestrator struct {
	addr    string
	workers workers
	places  chan struct{} // one for each process that may run
	running sync.WaitGroup
	ctx     context.Context
	client  *client.Client
	known   chan struct{} // closed when client is set

	mu     sync.Mutex
	latest map[string]*client.Assignment // by task: what runs, the last attempt
}

func main() {
	o := &orchestrator{workers: workers{}, known: make(chan struct{}), latest: map[string]*client.Assignment{}}
	profile := flag.String("profile", "process", "the profile to announce")
	most := flag.Int("max", 16, "how many processes may run at once")
	spec := flag.String("spec", "1", "this one's specifier, as its credential says: each that runs has another one")
	flag.StringVar(&o.addr, "addr", cmp.Or(os.Getenv("AETHER_ADDR"), "127.0.0.1:50051"), "the gateway")
	flag.Var(o.workers, "worker", "NAME=COMMAND: what starts an implementation; may be repeated")
	flag.Parse()
	if len(o.workers) == 0 || *most < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o.ctx, o.places = ctx, make(chan struct{}, *most)
	c, err := client.Connect(ctx, client.Options{
		Addr: o.addr, Token: os.Getenv("AETHER_TOKEN"), Identity: client.Orchestrator("local", *spec, *profile),
		OnNotice: func(n client.Notice) {
			if a, ok := n.(client.Assigned); ok {
				<-o.known
				o.start(a.Assignment)
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	o.client = c
	close(o.known)
	log.Printf("connected; waiting for something to start with profile %s", *profile)
	select {
	case <-ctx.Done():
	case <-c.Done():
		log.Print(c.Err())
		stop()
	}
	o.running.Wait()
	if err := c.Close(context.Background()); err != nil {
		log.Print(err)
	}
}

// start runs the command of an implementation, or says that it does not.
func (o *orchestrator) start(a *client.Assignment) {
	command := o.workers[a.Implementation]
	reason := ""
	select {
	case o.places <- struct{}{}:
		if command != nil {
			o.running.Go(func() {
				defer func() { <-o.places }()
				o.run(a, command)
			})
			return
		}
		<-o.places
		reason = fmt.Sprintf("no command for implementation %s", a.Implementation)
	default:
		reason = "as many processes run as may"
	}
	o.reject(a, reason)
}

// reject says that a worker was not started: it is tried again, or given up.
func (o *orchestrator) reject(a *client.Assignment, reason string) {
	log.Printf("cannot start %s: %s", a.Identity, reason)
	ctx, cancel := context.WithTimeout(o.ctx, stopping)
	defer cancel()
	if err := o.client.RejectStart(ctx, a, reason); err != nil {
		log.Print(err)
	}
}

// run runs a worker to its end. The token is in its environment, which only this
// user can read.
func (o *orchestrator) run(a *client.Assignment, command []string) {
	cmd := exec.CommandContext(o.ctx, command[0], command[1:]...)
	// What a command starts in its turn ends with it: go run does not pass signals on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = stopping
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(),
		"AETHER_TOKEN=", "AETHER_ADDR="+o.addr, "AETHER_TASK_TOKEN="+a.Token,
		"AETHER_WORKSPACE="+a.Workspace, "AETHER_IMPLEMENTATION="+a.Implementation, "AETHER_SPECIFIER="+a.Specifier)
	if !o.claim(a) {
		log.Printf("%s is not to be started any more", a.Identity)
		return
	}
	log.Printf("starting %s: %s", a.Identity, strings.Join(command, " "))
	o.mu.Lock()
	o.latest[a.TaskID] = a
	o.mu.Unlock()
	err := cmd.Run()
	o.mu.Lock()
	last := o.latest[a.TaskID] == a
	if last {
		delete(o.latest, a.TaskID)
	}
	o.mu.Unlock()
	how := "without an error"
	if err != nil {
		how = err.Error()
	}
	switch {
	case o.ctx.Err() != nil:
		if cmd.Process != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what has not ended when it was asked to
		}
	case last && o.unclaimed(a):
		o.reject(a, "its command ended before it connected: "+how)
		return
	}
	log.Printf("%s has ended: %s", a.Identity, how)
}

// claim says that the start is under way; it reports false if it is not this
// orchestrator's any more. Where nobody knows, the token decides.
func (o *orchestrator) claim(a *client.Assignment) bool {
	ctx, cancel := context.WithTimeout(o.ctx, stopping)
	defer cancel()
	_, err := o.client.ClaimTask(ctx, a.TaskID)
	code := client.CodeOf(err)
	return code != client.CodeNotFound && code != client.CodeInvalidArgument
}

// unclaimed reports whether a start is still this orchestrator's: no worker has
// connected for it, and its deadline has not passed.
func (o *orchestrator) unclaimed(a *client.Assignment) bool {
	ctx, cancel := context.WithTimeout(o.ctx, stopping)
	defer cancel()
	_, err := o.client.Task(ctx, a.TaskID)
	return err == nil // once it has a worker, it is not for others to see
}
