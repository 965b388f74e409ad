// Command onbehalf shows an agent that acts for a user: alice lets the agent
// helper write to the agent hello in her name, and takes that back again.
//
//	bin/gateway dev
//	AETHER_TOKEN=$(bin/gateway token create --kind agent --workspace demo --impl hello --spec 1) go run ./examples/hello
//	AETHER_USER_TOKEN=$(bin/gateway token create --kind user --user alice --workspace demo) \
//	AETHER_AGENT_TOKEN=$(bin/gateway token create --kind agent --workspace demo --impl helper --spec 1) \
//	go run ./examples/onbehalf
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/aether-gateway/gateway/client"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	addr := os.Getenv("AETHER_ADDR")
	if addr == "" {
		addr = "127.0.0.1:50051"
	}
	alice, err := client.Connect(ctx, client.Options{Addr: addr, Token: os.Getenv("AETHER_USER_TOKEN"), Identity: client.User("alice", "desk")})
	if err != nil {
		return err
	}
	defer alice.Close(ctx) //nolint:errcheck // it ends with the program
	helper, err := client.Connect(ctx, client.Options{Addr: addr, Token: os.Getenv("AETHER_AGENT_TOKEN"), Identity: client.Agent("demo", "helper", "1")})
	if err != nil {
		return err
	}
	defer helper.Close(ctx) //nolint:errcheck // it ends with the program

	grant, err := alice.IssueGrant(ctx, helper.Address(), client.GrantTerms{
		Addresses: []string{"ag::demo::hello::*"}, Operations: []string{"send"}, Expires: time.Now().Add(10 * time.Minute), Reason: "while I am at lunch",
	})
	if err != nil {
		return err
	}
	fmt.Println(grant.Delegate.ID, "acts for", grant.Subject.ID)
	answer, err := helper.Request(ctx, "ag::demo::hello::1", []byte("alice"), client.WithGrant(grant.ID))
	if err != nil {
		return err
	}
	fmt.Printf("%s answers: %s\n", answer.Source, answer.Payload)

	if _, err := alice.RevokeGrant(ctx, grant.ID); err != nil {
		return err
	}
	_, err = helper.Send(ctx, "ag::demo::hello::1", []byte("alice"), client.WithGrant(grant.ID))
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Code != client.CodeGrantInvalid {
		return fmt.Errorf("the grant was revoked, and yet: %w", err)
	}
	fmt.Println("then:", refused.Message)
	return nil
}
