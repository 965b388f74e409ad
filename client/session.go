package client

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Session is what the gateway said when the connection was made.
type Session struct {
	// ID is the session's id; it changes with each connection.
	ID string
	// Address is where messages reach this principal, "" if nothing does.
	Address string
	// Resumed: it took over from the session before it.
	Resumed bool
	// Extended: the gateway knows acknowledgements, receipts, message ids,
	// metadata and heartbeats.
	Extended bool
	// MaxPayload is the largest payload in bytes; 0 if it was not told.
	MaxPayload int
	// Heartbeat is the longest silence to expect from the gateway.
	Heartbeat time.Duration
	// CredentialExpires is when the session ends unless the credential is renewed
	// within it; zero if it does not expire.
	CredentialExpires time.Time
	// Epoch rises with each session of the identity; a fencing number for what the
	// program writes elsewhere.
	Epoch uint64
	// ServerVersion is for display.
	ServerVersion string
}

func newSession(id Identity, ack *aetherv1.ConnectionAck) Session {
	s := Session{
		ID: ack.GetSessionId(), Address: id.address(ack.GetAssignedId()), Resumed: ack.GetResumed(),
		// Field 100 is what tells a gateway with the extension from one without.
		Extended:      ack.GetMaxPayloadBytes() > 0,
		MaxPayload:    int(min(ack.GetMaxPayloadBytes(), maxFrame-frameRoom)),
		Heartbeat:     milliseconds(ack.GetHeartbeatIntervalMs()),
		Epoch:         ack.GetEpoch(),
		ServerVersion: ack.GetServerVersion(),
	}
	if ms := ack.GetCredentialExpiresAtMs(); ms > 0 {
		s.CredentialExpires = time.UnixMilli(ms)
	}
	return s
}

// Config is what an agent or a task is told when it connects.
type Config struct {
	Workspace map[string][]byte // keys of its implementation in its workspace
	Global    map[string][]byte // keys of its implementation
	Task      map[string]string // the task that it was started for
	Truncated bool              // not all keys are here: read the rest by [Client.Keys]
}

func newConfig(f *aetherv1.ConfigSnapshot) Config {
	c := Config{
		Workspace: f.GetWorkspaceExclusiveKv(), Global: f.GetGlobalExclusiveKv(),
		Task: f.GetTaskContext(), Truncated: f.GetTruncated(),
	}
	if c.Workspace == nil {
		c.Workspace = f.GetKv() //nolint:staticcheck // gateways may fill either pair
	}
	if c.Global == nil {
		c.Global = f.GetGlobalKv() //nolint:staticcheck // as above
	}
	return c
}

// buildInfo describes this program to the gateway's operators.
var buildInfo = sync.OnceValue(func() *aetherv1.BuildInfo {
	info := &aetherv1.BuildInfo{Runtime: runtime.Version(), Os: runtime.GOOS + "/" + runtime.GOARCH}
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, s := range b.Settings {
			switch s.Key {
			case "vcs.revision":
				info.Commit = s.Value
			case "vcs.time":
				info.BuiltAt = s.Value
			}
		}
	}
	return info
})
