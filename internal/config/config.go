package config

import (
	"time"

	"github.com/aether-gateway/gateway/internal/wiring"
)

// Mode is the way in which the gateway runs.
type Mode string

const (
	// Dev keeps everything in one directory and one process.
	Dev Mode = "dev"
	// Serve uses RabbitMQ and PostgreSQL.
	Serve Mode = "serve"
)

// Size is a number of bytes.
type Size int64

// Config is a checked configuration. It is made by [Load] and not changed
// afterwards; the zero value is not usable.
type Config struct {
	Mode Mode

	GRPCAddr, HTTPAddr, OpsAddr string
	InstanceID                  string
	DataDir                     string

	// The URLs hold their passwords, also those from files.
	Postgres struct {
		URL, PasswordFile string
		Migrate           bool
	}
	Redis struct {
		URL, PasswordFile string
	}
	RabbitMQ struct {
		StreamURLs   []string
		PasswordFile string
	}

	JWT struct {
		KeyFiles []KeyFile
	}
	Auth struct {
		Issuer, Audience string
		Anonymous        bool
		Leeway           time.Duration
		JWKSURL          string
		JWKSIssuer       string
		JWKSRefresh      time.Duration
		JWKSMaxStale     time.Duration
		Certificates     []CertificateEntry
		// FailureRate is per second and address, 0 for no limit.
		FailureRate int64
	}
	TLS struct {
		CertFile, KeyFile, ClientCA string
	}

	MaxPayload Size
	Rate       struct {
		// Messages and Bytes are per identity and second, 0 for no limit.
		Messages int64
		Bytes    Size
		// Credential and Workspace are -1 where they follow from those; see
		// [Config.CredentialRate] and [Config.WorkspaceRate].
		Credential, Workspace struct {
			Messages int64
			Bytes    Size
		}
	}
	Limits struct {
		// SessionsPerWorkspace and SessionsPerCredential are 0 for no limit.
		SessionsPerWorkspace, SessionsPerCredential int64
		// StoredBytesPerWorkspace and AddressesPerWorkspace are 0 for no limit.
		StoredBytesPerWorkspace Size
		AddressesPerWorkspace   int64
		// KeysPerWorkspace and KeyBytesPerWorkspace are 0 for no limit.
		KeysPerWorkspace     int64
		KeyBytesPerWorkspace Size
	}
	KV struct {
		// CheckpointTTL is 0 for checkpoints without an end.
		CheckpointTTL time.Duration
	}
	Admission struct {
		Rate int64
	}

	Streams struct {
		Partitions int64
		Placement  []Placement
		// SegmentBytes is the unit in which retention removes.
		SegmentBytes Size
		// RecentBytes is per stream, in memory.
		RecentBytes Size
		Retention   struct {
			// MaxAge and MaxBytes are per stream, 0 for no limit.
			MaxAge   time.Duration
			MaxBytes Size
		}
	}

	Session struct {
		MaxUnacked, MaxUnackedLimit int64
		InitTimeout, WriteTimeout   time.Duration
		HeartbeatInterval           time.Duration
		KeepaliveTime               time.Duration
		KeepaliveTimeout            time.Duration
		QueueBytes                  Size
	}

	Runtime struct {
		MaxBytes Size
		Ring     struct {
			Messages int64
			Bytes    Size
		}
		Group struct {
			Messages, MaxAttempts int64
			Bytes                 Size
		}
		Route struct {
			Messages, Principals int64
			Bytes                Size
		}
		Tracked struct {
			MaxInFlight int64
			Timeout     time.Duration
		}
	}
	Tracing struct {
		// Endpoint is empty if nothing is traced.
		Endpoint string
		OneIn    int64
	}
	Topics []wiring.Topic
	Routes []wiring.Route
	Tasks  struct {
		StartDeadline, GraceWindow, Retention                                       time.Duration
		StartAttempts, StartsPerSender, StartsPerWorkspace, StartsPerImplementation int64
	}
	Workspaces struct {
		AutoCreate bool
	}
	Rules struct {
		Max int64
	}
	Grants struct {
		MaxPerSubject         int64
		Lifetime, MaxLifetime time.Duration
	}
	Audit struct {
		Retention time.Duration
	}
	Shutdown struct {
		Timeout time.Duration
	}
	GRPC struct {
		Reflection bool
	}
	Log struct {
		Level, Format string
	}

	sources map[string]Source
}

// KeyFile is one file with a key for credentials.
type KeyFile struct {
	Path string
	// Alg is "HS256" if the operator said that the file is a secret, else "":
	// the file's name and content tell.
	Alg string
}

// Placement gives the addresses that it matches a stream of their own: one
// Address, or all with a Prefix, or those with a Prefix in a Workspace.
type Placement struct {
	Address           string
	Prefix, Workspace string
}
