// Package client is the Go SDK of the gateway: one connection that acts as an
// agent, a task, a user or another principal, sends messages and knows what
// became of each, and receives messages without losing one.
//
//	c, err := client.Connect(ctx, client.Options{
//		Addr:     "127.0.0.1:50051",
//		Token:    os.Getenv("AETHER_TOKEN"),
//		Identity: client.Agent("demo", "echo", "1"),
//		Handler: func(ctx context.Context, m *client.Message) error {
//			_, err := m.Reply(ctx, m.Payload)
//			return err
//		},
//	})
//
// # Sending
//
// [Client.Send] returns when the gateway has stored the message, or says why it
// was refused. [Client.SendAsync] does the same without waiting, so that many
// sends are under way at once, and [Client.Post] asks for no answer. Messages
// that one goroutine sends to one address are stored in the order of the calls.
//
// Each message has an id, made by the client unless [WithMessageID] gives one.
// If the connection breaks before the answer came, the client connects again and
// repeats what is unanswered, in order and under the same ids; the gateway
// stores each id once, unless it was itself restarted in between: then the
// receiver recognises the repeat. A send ends with an error when its context ends; the
// error says by [NotStored] and [SafeToRetry] what is known.
//
// # Receiving
//
// Give a Handler, or call [Client.Receive] or range over [Client.Messages]. A
// message that was addressed to this principal alone is acknowledged after its
// handler returned nil. A handler that returns an error, or panics, gets the
// message again, five times in all within a few seconds; then the gateway counts
// it as done. A handler that must not lose it tries again itself until it has
// succeeded. Wrap the error with [Drop] to be done with it at once. With Receive and Messages, and with
// [Options.ExplicitAcks], call [Message.Ack] or [Message.Nack] yourself.
//
// Delivery is at least once. What comes a second time, after a lost connection
// say, is recognised by source, address and id and is acknowledged without
// calling the handler; see [Options.DedupeWindow] for how far back.
//
// # Staying connected
//
// The client notices a gateway that has gone silent, and connects again after
// any break with growing, random pauses, until [Client.Close] or until the
// gateway says that there is no point: then [Client.Done] is closed and
// [Client.Err] says why.
//
// A gateway that does not know acknowledgements and receipts is served as well:
// [Session.Extended] is then false, [Receipt.Confirmed] is false, and messages
// count as received when the client read them.
//
// The package refuses to parse addresses (the gateway does), to log without
// being given a logger, and to send a credential over an unencrypted connection
// that leaves the machine, unless told to.
package client
