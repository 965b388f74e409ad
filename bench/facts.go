package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// facts are what a reader needs to know of where figures come from.
type facts struct {
	Time       time.Time
	Command    string
	OS, Arch   string
	CPUs       int
	CPU        string
	Go         string
	Kernel     string
	Versions   map[string]string
	LoadBefore string
	LoadAfter  string
}

func gather(args []string) facts {
	f := facts{
		Time: time.Now(), Command: "go run ./bench", OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(),
		CPU: cpuModel(), Go: runtime.Version(), Kernel: firstWord("/proc/sys/kernel/osrelease"), Versions: map[string]string{},
		LoadBefore: loadAverage(),
	}
	if len(args) > 0 {
		f.Command += " " + strings.Join(args, " ")
	}
	for _, v := range []string{"GOGC", "GOMEMLIMIT", "GOMAXPROCS"} {
		if set := os.Getenv(v); set != "" {
			f.Command = v + "=" + set + " " + f.Command
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			for _, name := range []string{"google.golang.org/grpc", "google.golang.org/protobuf", "github.com/rabbitmq/rabbitmq-stream-go-client"} {
				if dep.Path == name {
					f.Versions[name[strings.LastIndexByte(name, '/')+1:]] = dep.Version
				}
			}
		}
	}
	return f
}

func (f *facts) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d cores (%s), %s/%s, Linux %s, %s", f.Time.UTC().Format("2006-01-02 15:04 UTC"), f.CPUs, f.CPU, f.OS, f.Arch, f.Kernel, f.Go)
	for _, name := range []string{"grpc", "protobuf", "rabbitmq-stream-go-client", "RabbitMQ", "PostgreSQL"} {
		if v := f.Versions[name]; v != "" {
			fmt.Fprintf(&b, ", %s %s", name, v)
		}
	}
	fmt.Fprintf(&b, "\nload of the machine before: %s; after: %s\ncommand: %s\n", f.LoadBefore, f.LoadAfter, f.Command)
	return b.String()
}

func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func firstWord(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	word, _, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	return word
}

// loadAverage is how many threads wanted to run in the last minute.
func loadAverage() string { return firstWord("/proc/loadavg") }
