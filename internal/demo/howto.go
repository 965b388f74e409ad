package demo

import (
	"fmt"
	"io"
	"strings"
)

// DefaultAddr is where gateway dev serves unless it is told otherwise.
const DefaultAddr = "127.0.0.1:50051"

// Example is the body of main in examples/echo, which a test compares.
const Example = `	c, err := client.Connect(context.Background(), client.Options{
		Addr: "127.0.0.1:50051", Token: os.Getenv("AETHER_TOKEN"), Identity: client.Agent("demo", "echo", "1"),
		Handler: func(ctx context.Context, m *client.Message) error {
			_, err := m.Reply(ctx, m.Payload)
			return err
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("connected as %s", c.Address())
	<-c.Done()
	log.Fatal(c.Err())
`

// HowTo prints the Go program that connects to the gateway at addr. create is
// the command that makes its credential, ask the one that writes to it and waits
// for the answer.
func HowTo(w io.Writer, addr, create, ask string) error {
	_, err := fmt.Fprintf(w, `  In Go (examples/echo/main.go), an agent that answers with what it gets:

%s
  Run it, and ask it something in another terminal
            AETHER_TOKEN=$(%s) \
              go run ./examples/echo
            %s

`, indent(strings.ReplaceAll(Example, DefaultAddr, addr)), create, ask)
	return err
}

// indent sets the example off, with spaces: terminals take tabs too wide.
func indent(s string) string {
	return strings.ReplaceAll("  "+strings.ReplaceAll(s, "\n", "\n  "), "\t", "    ")
}
