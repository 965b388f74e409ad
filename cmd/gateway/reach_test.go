package main

import (
	"net"
	"strings"
	"testing"
)

// A gateway that takes connections and says nothing leaves time for the next.
func TestSendPassesAHangingGateway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := launchDev(t, dir)
	hangs, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	succeed(t, nil, "send", "--data-dir", dir, "--timeout", "20s", "--addr", hangs.Addr().String()+","+g.grpc,
		"--as", "us::alice::cli", "--to", "ag::w::i::s", "--text", "x")
	g.stop(t)
}

func TestAddressAdvice(t *testing.T) {
	t.Parallel()
	both := &target{addr: "a:1,b:1", from: "--addr", name: "gateway"}
	if how := both.howToStart(); strings.Contains(how, "dev") {
		t.Errorf("several gateways: %s", how)
	}
	if _, _, err := (&clientFlags{Addr: "127.0.0.1:1,"}).address(&program{}); err == nil || !strings.Contains(err.Error(), "separate several by commas") {
		t.Errorf("an empty address: %v", err)
	}
}
