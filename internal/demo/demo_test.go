package demo

import (
	"os"
	"strings"
	"testing"
)

// What is printed as an example is what the compiler has seen.
func TestExampleIsTheProgram(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile("../../examples/echo/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(program), "func main() {\n"+Example+"}\n") {
		t.Error("examples/echo/main.go and demo.Example differ")
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if outdented := strings.ReplaceAll("\n"+Example, "\n\t", "\n"); !strings.Contains(string(readme), "```go"+outdented+"```") {
		t.Error("README.md and demo.Example differ")
	}
	var b strings.Builder
	if err := HowTo(&b, "127.0.0.1:4000", "make token", "ask it"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), `Addr: "127.0.0.1:4000"`) || strings.Contains(b.String(), DefaultAddr) {
		t.Errorf("the address is not the gateway's:\n%s", b.String())
	}
}

// A payload is somebody else's text and goes to a terminal.
func TestLinesAreClean(t *testing.T) {
	t.Parallel()
	for _, k := range []Kind{Scene, Connected, Left, Stored, Received, Waited, Refused, Good, Bad, "other"} {
		e := Event{Kind: k, Who: "a\x1b[2J", From: "b\a", To: "c\r", Text: "d\x1b]0;x\a\u202e", Took: "1 ms", Position: 3, RedeliveryFlag: true}
		line := strings.TrimPrefix(e.Line(), "\n")
		if strings.ContainsAny(line, "\x1b\a\r\n\u202e") {
			t.Errorf("%s: %q", k, line)
		}
	}
}
