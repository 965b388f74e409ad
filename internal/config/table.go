package config

import "time"

// maxName bounds what other servers call themselves, which may be a URL.
const maxName = 512

// fixed is what holds where the bounds of the runtime cannot be set yet.
const fixed = "what is bounded so far has a bound that is built in"

// table is the one list of keys.
var table = []Key{
	{
		Name: "grpc_addr", Type: TypeListen, Default: "127.0.0.1:50051", Flag: "--grpc-addr",
		Doc:   "Where clients connect by gRPC. Port 0 picks a free one; an empty host means every interface.",
		field: func(c *Config) any { return &c.GRPCAddr },
	},
	{
		Name: "http_addr", Type: TypeListen, Default: "127.0.0.1:8080", Flag: "--http-addr",
		Doc:   "The HTTP port: start page, `/healthz`, `/readyz`; under `dev` also `/metrics`.",
		field: func(c *Config) any { return &c.HTTPAddr },
	},
	{
		Name: "ops_addr", Type: TypeListen, Default: "127.0.0.1:9464", DevDefault: Off,
		Doc: "The operators' port: `/metrics`, `/debug/goroutines`, and `/readyz` with reasons. `off` closes it. " +
			"If nobody has set it and the default port is taken, a free one is used and the log names it.",
		field: func(c *Config) any { return &c.OpsAddr },
	},
	{
		Name: "instance_id", Type: TypeString,
		Doc: "The name of this gateway, in logs and among others that use the same Redis, of which no two may have the same. " +
			"Without one, the host's name and the process id.",
		field: func(c *Config) any { return &c.InstanceID },
	},
	{
		Name: "data_dir", Type: TypeString, Default: ".aether", Only: Dev, Flag: "--data-dir",
		Doc:   "The directory that holds everything `dev` keeps: messages, positions, its signing key.",
		field: func(c *Config) any { return &c.DataDir },
	},

	{
		Name: "postgres.url", Type: TypeURL, Schemes: []string{"postgres", "postgresql"}, Only: Serve, Required: Serve,
		Doc:   "The PostgreSQL database that keeps positions: `postgres://USER:PASSWORD@HOST:PORT/NAME`.",
		field: func(c *Config) any { return &c.Postgres.URL },
	},
	passwordFile("postgres.password_file", "postgres.url", func(c *Config) any { return &c.Postgres.PasswordFile }),
	{
		Name: "postgres.migrate", Type: TypeBool, Default: "false", Only: Serve, Flag: "--migrate",
		Doc:   "Bring the database's schema up to date at start, as `gateway migrate up` does.",
		field: func(c *Config) any { return &c.Postgres.Migrate },
	},
	{
		Name: "rabbitmq.stream_url", Type: TypeURLs, Schemes: []string{"rabbitmq-stream", "rabbitmq-stream+tls"}, Only: Serve, Required: Serve,
		Doc:   "The RabbitMQ nodes by the stream protocol: `rabbitmq-stream://USER:PASSWORD@HOST:5552/%2f`, with TLS `rabbitmq-stream+tls://`; several for a cluster.",
		field: func(c *Config) any { return &c.RabbitMQ.StreamURLs },
	},
	passwordFile("rabbitmq.password_file", "rabbitmq.stream_url", func(c *Config) any { return &c.RabbitMQ.PasswordFile }),
	{
		Name: "redis.url", Type: TypeURL, Schemes: []string{"redis", "rediss"}, Only: Serve,
		Doc: "The Redis that several gateways share: `redis://[USER:PASSWORD@]HOST:PORT[/DB]`, with TLS `rediss://`. It must not evict keys. " +
			"Without it a gateway is alone on its database and keeps leases in its own memory.",
		field: func(c *Config) any { return &c.Redis.URL },
	},
	passwordFile("redis.password_file", "redis.url", func(c *Config) any { return &c.Redis.PasswordFile }),

	{
		Name: "jwt.key_file", Type: TypeKeyFiles,
		Doc: "Files with keys that credentials may be signed with, or directories with such files `*.pem` and `*.hs256`; several while keys are exchanged. " +
			"PEM with a public or private key: RSA is RS256, P-256 ES256, Ed25519 EdDSA. Or the bytes of an HS256 secret, at least 32, " +
			"in a file named `*.hs256` or written as `HS256:PATH`. A file's name without its extension is the `kid`. Changes count within a second, without a restart. " +
			"`serve` needs this or `auth.jwks_url`; `dev` makes a key in its data directory and takes these as well.",
		field: func(c *Config) any { return &c.JWT.KeyFiles },
	},
	{
		Name: "auth.issuer", Type: TypeString, Default: "aether", Max: maxName,
		Doc:   "The `iss` that a credential must carry.",
		field: func(c *Config) any { return &c.Auth.Issuer },
	},
	{
		Name: "auth.audience", Type: TypeString, Default: "aether", Max: maxName,
		Doc:   "The `aud` that a credential must carry.",
		field: func(c *Config) any { return &c.Auth.Audience },
	},
	{
		Name: "auth.leeway", Type: TypeDuration, Default: "10s", Min: 0, Max: seconds(30),
		Doc:   "How far clocks may differ when a credential's times are checked at connect.",
		field: func(c *Config) any { return &c.Auth.Leeway },
	},
	{
		Name: "auth.jwks_url", Type: TypeURL, Schemes: []string{"https", "http"},
		Doc: "Where another server publishes public keys for credentials, as a JSON Web Key Set: `https://HOST/PATH`; `http://` on this machine only. " +
			"Its RSA (RS256), P-256 (ES256) and Ed25519 (EdDSA) keys count.",
		field: func(c *Config) any { return &c.Auth.JWKSURL },
	},
	{
		Name: "auth.jwks_issuer", Type: TypeString, Max: maxName,
		Doc:   "The `iss` of credentials that are signed with the keys of `auth.jwks_url`; without it, `auth.issuer`.",
		field: func(c *Config) any { return &c.Auth.JWKSIssuer },
	},
	{
		Name: "auth.jwks_refresh", Type: TypeDuration, Default: "5m", Min: seconds(1), Max: int64(day),
		Doc:   "How often the published keys are fetched, and so how long one that is withdrawn still counts. A `kid` that is not known is looked for at once, at most every 30 s.",
		field: func(c *Config) any { return &c.Auth.JWKSRefresh },
	},
	{
		Name: "auth.jwks_max_stale", Type: TypeDuration, Default: "1h", Min: seconds(1), Max: int64(30 * day),
		Doc:   "How long the published keys count when they cannot be fetched any more.",
		field: func(c *Config) any { return &c.Auth.JWKSMaxStale },
	},
	{
		Name: "auth.certificates", Type: TypeEntries,
		Doc: "Client certificates that stand in for a credential: a list of `{uri: …, kind: agent, workspaces: [w], impl: i, spec: s}`. A certificate is named by its `subject` " +
			"(as RFC 2253 writes it), or by a `dns`, `uri` or `email` name, byte for byte; the rest is what a token would say. Needs `tls.client_ca`.",
		field: func(c *Config) any { return &c.Auth.Certificates },
	},
	{
		Name: "auth.failure_rate", Type: TypeInt, Default: "5", Min: 0, Max: 1_000_000,
		Doc: "Refused credentials per second and address (of IPv6, network of 64 bits), with twenty times that at once. Beyond it an address is told to come back later; " +
			"a good credential gets in all the same. 0 is no limit.",
		field: func(c *Config) any { return &c.Auth.FailureRate },
	},
	{
		Name: "auth.anonymous", Type: TypeBool, Default: "false",
		Doc:   "Let agents, tasks and users on this machine (loopback) connect without a credential, as whoever they say they are. A proxy on this machine makes everybody local.",
		field: func(c *Config) any { return &c.Auth.Anonymous },
	},
	{
		Name: "tls.cert_file", Type: TypeFile,
		Doc:   "The certificate, with those between it and its authority, by which the gRPC and the HTTP port serve TLS (1.2 or newer): PEM. Changes count within a second, without a restart.",
		field: func(c *Config) any { return &c.TLS.CertFile },
	},
	{
		Name: "tls.key_file", Type: TypeFile,
		Doc:   "The private key of `tls.cert_file`: PEM.",
		field: func(c *Config) any { return &c.TLS.KeyFile },
	},
	{
		Name: "tls.client_ca", Type: TypeFile,
		Doc:   "The authorities whose client certificates the gRPC port accepts: PEM. A certificate alone lets nobody in: see `auth.certificates`.",
		field: func(c *Config) any { return &c.TLS.ClientCA },
	},
	{
		Name: "workspaces.auto_create", Type: TypeBool, Default: "false", DevDefault: "true",
		Doc: "Whether a workspace exists as soon as somebody names it. If not, an operator creates it with `gateway workspace create`, " +
			"and who connects into it or sends to it before is refused.",
		field: func(c *Config) any { return &c.Workspaces.AutoCreate },
	},

	{
		Name: "rules.max", Type: TypeInt, Default: "10000", Min: 1, Max: 100_000,
		Doc:   "How many policy rules there may be. More are refused when they are added; those that exist stay in force.",
		field: func(c *Config) any { return &c.Rules.Max },
	},
	{
		Name: "grants.max_per_subject", Type: TypeInt, Default: "1000", Min: 1, Max: 10_000,
		Doc:   "How many authority grants of one subject there may be, derived ones and those that ended within the last hour included.",
		field: func(c *Config) any { return &c.Grants.MaxPerSubject },
	},
	{
		Name: "grants.lifetime", Type: TypeDuration, Default: "1h", Min: int64(time.Second), Max: int64(366 * 24 * time.Hour),
		Doc:   "How long a grant is good that does not say.",
		field: func(c *Config) any { return &c.Grants.Lifetime },
	},
	{
		Name: "grants.max_lifetime", Type: TypeDuration, Default: "720h", Min: int64(time.Second), Max: int64(366 * 24 * time.Hour),
		Doc:   "How long a grant may be good, renewals included.",
		field: func(c *Config) any { return &c.Grants.MaxLifetime },
	},
	{
		Name: "max_payload", Type: TypeSize, Default: "1000000", Min: 1, Max: MaxPayloadLimit,
		Doc:   "The largest payload of a message. At most 1,000,000 bytes: a broker's frame holds 1 MiB with the envelope.",
		field: func(c *Config) any { return &c.MaxPayload },
	},
	{
		Name: "rate.messages", Type: TypeInt, Default: "1000", Min: 0, Max: 1_000_000_000,
		Doc:   "Messages that an identity may send per second, on all gateways together, with twice that as burst. 0 is no limit.",
		field: func(c *Config) any { return &c.Rate.Messages },
	},
	{
		Name: "rate.bytes", Type: TypeSize, Default: "16MiB", Min: 0, Max: 1 * tib,
		Doc:   "Bytes (payload, subject, metadata) that an identity may send per second, with twice that as burst. 0 is no limit.",
		field: func(c *Config) any { return &c.Rate.Bytes },
	},
	{
		Name: "rate.credential.messages", Type: TypeInt, Default: auto, Min: 0, Max: 1_000_000_000, Auto: true,
		Doc:   "The same for all identities together that one credential, or one user, lets in. `auto` is `rate.messages`; 0 is no limit.",
		field: func(c *Config) any { return &c.Rate.Credential.Messages },
	},
	{
		Name: "rate.credential.bytes", Type: TypeSize, Default: auto, Min: 0, Max: 1 * tib, Auto: true,
		Doc:   "The same in bytes. `auto` is `rate.bytes`; 0 is no limit.",
		field: func(c *Config) any { return &c.Rate.Credential.Bytes },
	},
	{
		Name: "rate.workspace.messages", Type: TypeInt, Default: auto, Min: 0, Max: 1_000_000_000, Auto: true,
		Doc:   "Messages that all who send in one workspace may send per second together, with twice that as burst. `auto` is twenty times `rate.messages`; 0 is no limit.",
		field: func(c *Config) any { return &c.Rate.Workspace.Messages },
	},
	{
		Name: "rate.workspace.bytes", Type: TypeSize, Default: auto, Min: 0, Max: 1 * tib, Auto: true,
		Doc:   "The same in bytes. `auto` is twenty times `rate.bytes`; 0 is no limit.",
		field: func(c *Config) any { return &c.Rate.Workspace.Bytes },
	},
	{
		Name: "limits.sessions_per_workspace", Type: TypeInt, Default: "50000", Min: 0, Max: 10_000_000,
		Doc:   "Sessions of agents, tasks and users that a workspace may have on all gateways together. 0 is no limit.",
		field: func(c *Config) any { return &c.Limits.SessionsPerWorkspace },
	},
	{
		Name: "limits.sessions_per_credential", Type: TypeInt, Default: "10000", Min: 0, Max: 10_000_000,
		Doc:   "Sessions that one credential, or one user, may have on all gateways together. 0 is no limit.",
		field: func(c *Config) any { return &c.Limits.SessionsPerCredential },
	},
	{
		Name: "limits.stored_bytes_per_workspace", Type: TypeSize, Default: "8GiB", DevDefault: "0", Min: 0, Max: 1024 * tib,
		Doc: "Bytes that the messages sent in a workspace may take in the log; past that its sends are refused until retention has removed some. " +
			"Keep it well below `streams.retention.max_bytes`, so that no workspace pushes out another's mail. 0 is no limit.",
		field: func(c *Config) any { return &c.Limits.StoredBytesPerWorkspace },
	},
	{
		Name: "limits.addresses_per_workspace", Type: TypeInt, Default: "1000000", Min: 0, Max: 1_000_000_000,
		Doc: "Addresses and sessions of a workspace of which the database keeps a note or a mark, until they expire with retention; past that, sends to addresses " +
			"under which nobody is connected are refused. 0 is no limit.",
		field: func(c *Config) any { return &c.Limits.AddressesPerWorkspace },
	},
	{
		Name: "limits.keys_per_workspace", Type: TypeInt, Default: "100000", Min: 0, Max: 1_000_000_000,
		Doc: "Keys of the key-value store, checkpoints among them, that a workspace may have, and each implementation besides that are shared by all workspaces; " +
			"past that, new ones are refused. 0 is no limit.",
		field: func(c *Config) any { return &c.Limits.KeysPerWorkspace },
	},
	{
		Name: "limits.key_bytes_per_workspace", Type: TypeSize, Default: "1GiB", Min: 0, Max: 1024 * tib,
		Doc:   "The same in bytes of keys and values, each counted in steps of 1 KiB. 0 is no limit.",
		field: func(c *Config) any { return &c.Limits.KeyBytesPerWorkspace },
	},
	{
		Name: "kv.checkpoint_ttl", Type: TypeDuration, Default: "7d", Min: seconds(1), Max: int64(10 * 365 * day), ZeroOff: true,
		Doc:   "How long a checkpoint is kept whose owner leaves that to the gateway (`ttl` -1). 0 is without end.",
		field: func(c *Config) any { return &c.KV.CheckpointTTL },
	},
	{
		Name: "admission.rate", Type: TypeInt, Default: "500", Min: 0, Max: 1_000_000,
		Doc:   "New sessions per second, and as many at once. Others are told when to come back. 0 is no limit.",
		field: func(c *Config) any { return &c.Admission.Rate },
	},

	{
		Name: "streams.partitions", Type: TypeInt, Default: "4", DevDefault: "1", Min: 1, Max: 256,
		Doc:   "The number of streams that addresses share. Fixed when a deployment is born.",
		field: func(c *Config) any { return &c.Streams.Partitions },
	},
	{
		Name: "streams.placement", Type: TypePlacement,
		Doc: "Rules that give addresses a stream of their own: a list of `{prefix: …}`, `{prefix: …, workspace: …}` or `{address: …}`. " +
			"The first one that matches decides. Fixed when a deployment is born.",
		field: func(c *Config) any { return &c.Streams.Placement },
	},
	{
		Name: "streams.retention.max_age", Type: TypeDuration, Default: "7d", Min: seconds(1), Max: int64(10 * 365 * day), ZeroOff: true,
		Doc:   "How long a stream keeps messages. 0 is no limit.",
		field: func(c *Config) any { return &c.Streams.Retention.MaxAge },
	},
	{
		Name: "streams.retention.max_bytes", Type: TypeSize, Default: "20GiB", DevDefault: "1GiB", Min: 1 * kib, Max: 1024 * tib, ZeroOff: true,
		Doc:   "How large a stream may grow. 0 is no limit.",
		field: func(c *Config) any { return &c.Streams.Retention.MaxBytes },
	},
	{
		Name: "streams.segment_bytes", Type: TypeSize, Default: "128MiB", Min: 1 * kib, Max: 3 * gib, Only: Serve,
		Doc:   "The size of a segment, the unit in which retention removes. `dev` removes message by message.",
		field: func(c *Config) any { return &c.Streams.SegmentBytes },
	},

	{
		Name: "streams.recent_bytes", Type: TypeSize, Default: "16MiB", Min: 1 * mib, Max: 4 * gib,
		Doc:   "How much of each stream's recent past is kept in memory for readers that are a little behind.",
		field: func(c *Config) any { return &c.Streams.RecentBytes },
	},

	{
		Name: "session.max_unacked", Type: TypeInt, Default: "256", Min: 1, Max: 65_536,
		Doc:   "Unacknowledged messages at which delivery to a client waits, if the client asks for no number of its own.",
		field: func(c *Config) any { return &c.Session.MaxUnacked },
	},
	{
		Name: "session.max_unacked_limit", Type: TypeInt, Default: "10000", Min: 1, Max: 65_536,
		Doc:   "The most that a client may ask for instead.",
		field: func(c *Config) any { return &c.Session.MaxUnackedLimit },
	},
	{
		Name: "session.init_timeout", Type: TypeDuration, Default: "10s", Min: int64(100 * time.Millisecond), Max: seconds(600),
		Doc:   "How long a new connection may take to say who it is.",
		field: func(c *Config) any { return &c.Session.InitTimeout },
	},
	{
		Name: "session.write_timeout", Type: TypeDuration, Default: "60s", Min: int64(100 * time.Millisecond), Max: seconds(3600),
		Doc:   "How long a connection may be blocked before it is ended.",
		field: func(c *Config) any { return &c.Session.WriteTimeout },
	},
	{
		Name: "session.heartbeat_interval", Type: TypeDuration, Default: "15s", Min: int64(100 * time.Millisecond), Max: seconds(600),
		Doc:   "How long a connection may be silent before the gateway sends a heartbeat.",
		field: func(c *Config) any { return &c.Session.HeartbeatInterval },
	},
	{
		Name: "session.keepalive_time", Type: TypeDuration, Default: "10s", Min: seconds(1), Max: seconds(3600),
		Doc:   "How long a connection may be idle before the transport is asked whether the peer is there.",
		field: func(c *Config) any { return &c.Session.KeepaliveTime },
	},
	{
		Name: "session.keepalive_timeout", Type: TypeDuration, Default: "10s", Min: int64(100 * time.Millisecond), Max: seconds(600),
		Doc:   "How long the peer may take to answer that.",
		field: func(c *Config) any { return &c.Session.KeepaliveTimeout },
	},
	{
		Name: "session.queue_bytes", Type: TypeSize, Default: "1MiB", Min: 64 * kib, Max: 1 * gib,
		Doc:   "Bytes that wait for one slow client in memory; what is more waits in the log.",
		field: func(c *Config) any { return &c.Session.QueueBytes },
	},
	{
		Name: "runtime.max_bytes", Type: TypeSize, Default: "1GiB", Min: 1 * mib, Max: 1 * tib,
		Doc:   "Memory that all buffers which `topics` declares may take together; more is refused at start.",
		field: func(c *Config) any { return &c.Runtime.MaxBytes },
	},
	{
		Name: "runtime.ring.messages", Type: TypeInt, Default: "1024", Min: 2, Max: 1 << 20,
		Doc:   "Messages that an address keeps for readers who share it and are behind; rounded up to a power of two.",
		field: func(c *Config) any { return &c.Runtime.Ring.Messages },
	},
	{
		Name: "runtime.ring.bytes", Type: TypeSize, Default: "4MiB", Min: 64 * kib, Max: 1 * gib,
		Doc:   "The same in bytes.",
		field: func(c *Config) any { return &c.Runtime.Ring.Bytes },
	},
	{
		Name: "runtime.group.messages", Type: TypeInt, Default: "128", Min: 1, Max: 1 << 20, Later: fixed,
		Doc:   "Messages that wait for the workers of an implementation on this gateway, if no topic is declared for their address.",
		field: func(c *Config) any { return &c.Runtime.Group.Messages },
	},
	{
		Name: "runtime.group.bytes", Type: TypeSize, Default: "4MiB", Min: 64 * kib, Max: 1 * gib, Later: fixed,
		Doc:   "The same in bytes.",
		field: func(c *Config) any { return &c.Runtime.Group.Bytes },
	},
	{
		Name: "runtime.group.max_attempts", Type: TypeInt, Default: "3", Min: 1, Max: 100, Later: fixed,
		Doc:   "How often a message is given to workers, before it goes to the dead letters.",
		field: func(c *Config) any { return &c.Runtime.Group.MaxAttempts },
	},
	{
		Name: "runtime.route.bytes", Type: TypeSize, Default: "1MiB", Min: 64 * kib, Max: 1 * gib,
		Doc:   "What waits for one fair subscription, or one feed, before the oldest is dropped; never less than the largest message.",
		field: func(c *Config) any { return &c.Runtime.Route.Bytes },
	},
	{
		Name: "runtime.route.messages", Type: TypeInt, Default: "16384", Min: 1, Max: 1 << 20,
		Doc:   "The same for the messages of each sender in it.",
		field: func(c *Config) any { return &c.Runtime.Route.Messages },
	},
	{
		Name: "runtime.route.principals", Type: TypeInt, Default: "4096", Min: 1, Max: 1 << 20,
		Doc:   "Senders that have a queue of their own in it; the others share one.",
		field: func(c *Config) any { return &c.Runtime.Route.Principals },
	},
	{
		Name: "runtime.tracked.max_in_flight", Type: TypeInt, Default: "1024", Min: 1, Max: 1 << 20, Later: fixed,
		Doc:   "Tracked messages of one session that may wait for their outcome.",
		field: func(c *Config) any { return &c.Runtime.Tracked.MaxInFlight },
	},
	{
		Name: "runtime.tracked.timeout", Type: TypeDuration, Default: "30s", Min: int64(time.Millisecond), Max: seconds(3600), Later: fixed,
		Doc:   "How long an outcome may take that the sender gives no time.",
		field: func(c *Config) any { return &c.Runtime.Tracked.Timeout },
	},
	{
		Name: "topics", Type: TypeTopics, Later: "what is declared of workers' queues, `observers` and `ack.max_in_flight` are checked only; the rest counts",
		Doc: "What is declared of topics: a list of `{address: …}`, or of `{prefix: …}`, `{workspace: …}` or both, each with `capacity` (messages; 128), `max_bytes` (4MiB), " +
			"`on_lag` (`drop_oldest` or `disconnect`), `queue_on_full` (`block` or `drop_newest`), `observers` (of workers' addresses; false) and " +
			"`ack: {mode: …, tracking: …, max_in_flight: …, timeout: …}` (`first` or `all`; `disabled` or `auto`; 1024; 30s). The most particular declaration counts.",
		field: func(c *Config) any { return &c.Topics },
	},
	{
		Name: "routes", Type: TypeRoutes,
		Doc: "What is forwarded: a list of `{name: …, from: …, filter: …, grammar: …, to: …, principal: …, workspaces: […]}`. `from` is an address, or `ag`, `tu`, `ta` or `tb` with a workspace " +
			"(`ag::acme`); `filter` a pattern for subjects by `grammar` (`strict`, `subtree` or `segmented`; without a filter everything is forwarded); `to` an address; " +
			"`principal` the service (`sv::…`) under whose permissions it happens, within `workspaces`, by default those of `from` and `to`. All gateways of a deployment should have the same routes; one at a time forwards for all. See [delivery.md](delivery.md).",
		field: func(c *Config) any { return &c.Routes },
	},
	{
		Name: "tasks.start_deadline", Type: TypeDuration, Default: "60s", Min: int64(100 * time.Millisecond), Max: seconds(86_400),
		Doc:   "How long a worker that is started may take to connect, before it is tried anew.",
		field: func(c *Config) any { return &c.Tasks.StartDeadline },
	},
	{
		Name: "tasks.start_attempts", Type: TypeInt, Default: "3", Min: 1, Max: 100,
		Doc:   "How often it is tried to start somebody for whom mail waits, before the start has failed. What waits then starts nobody for ten minutes, nor after three starts within ten minutes; a new message does at once.",
		field: func(c *Config) any { return &c.Tasks.StartAttempts },
	},
	{
		Name: "tasks.starts_per_sender", Type: TypeInt, Default: "1000", Min: 0, Max: 1_000_000,
		Doc:   "Starts that the messages of one identity may cause within a minute, on all gateways together; what is beyond waits. 0 is no limit.",
		field: func(c *Config) any { return &c.Tasks.StartsPerSender },
	},
	{
		Name: "tasks.starts_per_workspace", Type: TypeInt, Default: "5000", Min: 0, Max: 1_000_000,
		Doc:   "The same for all starts in a workspace.",
		field: func(c *Config) any { return &c.Tasks.StartsPerWorkspace },
	},
	{
		Name: "tasks.starts_per_implementation", Type: TypeInt, Default: "5000", Min: 0, Max: 1_000_000,
		Doc:   "The same for the starts of an implementation in a workspace.",
		field: func(c *Config) any { return &c.Tasks.StartsPerImplementation },
	},
	{
		Name: "tasks.retention", Type: TypeDuration, Default: "7d", Min: seconds(60), Max: int64(10 * 365 * day),
		Doc:   "How long tasks that have ended are kept, and how long one waits for a worker before it fails.",
		field: func(c *Config) any { return &c.Tasks.Retention },
	},
	{
		Name: "tasks.grace_window", Type: TypeDuration, Default: "30s", Min: 0, Max: seconds(86_400),
		Doc: "How long who works on a task may be gone before the attempt has failed. Then it is tried anew as long as attempts are left; a worker that was started for mail, also if that mail is done. " +
			"Who was started for a task and ends cleanly has completed it at once.",
		field: func(c *Config) any { return &c.Tasks.GraceWindow },
	},

	{
		Name: "audit.retention", Type: TypeDuration, Default: "90d", Min: seconds(60), Max: int64(10 * 365 * day), ZeroOff: true,
		Doc:   "How long the audit keeps what was recorded: connections, refusals, what operators did. 0 is no limit.",
		field: func(c *Config) any { return &c.Audit.Retention },
	},
	{
		Name: "grpc.reflection", Type: TypeBool, Default: "false", DevDefault: "true",
		Doc:   "Answer gRPC reflection, so that tools can list the service.",
		field: func(c *Config) any { return &c.GRPC.Reflection },
	},
	{
		Name: "tracing.endpoint", Type: TypeURL, Schemes: []string{"http", "https"},
		Doc: "Where spans of messages go by OpenTelemetry (OTLP over gRPC): `http://HOST:4317`, with TLS `https://`. Without it nothing is traced. " +
			"A message's trace begins with the `traceparent` in its metadata, and goes on in that of what is delivered.",
		field: func(c *Config) any { return &c.Tracing.Endpoint },
	},
	{
		Name: "tracing.one_in", Type: TypeInt, Default: "100", Min: 1, Max: 1_000_000_000,
		Doc:   "Of how many messages that belong to no trace one is traced. Of those that do, the ones whose trace is sampled.",
		field: func(c *Config) any { return &c.Tracing.OneIn },
	},
	{
		Name: "shutdown.timeout", Type: TypeDuration, Default: "20s", Min: int64(100 * time.Millisecond), Max: seconds(3600),
		Doc:   "How long a shutdown may take, whatever clients do.",
		field: func(c *Config) any { return &c.Shutdown.Timeout },
	},
	{
		Name: "log.level", Type: TypeString, Default: "info", Values: []string{"debug", "info", "warn", "error"},
		Doc:   "The least level that is logged.",
		field: func(c *Config) any { return &c.Log.Level },
	},
	{
		Name: "log.format", Type: TypeString, Default: "auto", Values: []string{"auto", "json", "text"},
		Doc:   "`auto` is text on a terminal and JSON otherwise.",
		field: func(c *Config) any { return &c.Log.Format },
	},
}

// passwordFile is a key that names the file with the password of a URL.
func passwordFile(name, of string, field func(*Config) any) Key {
	return Key{
		Name: name, Type: TypeFile, Only: Serve, PasswordOf: of,
		Doc:   "A file that holds the password of `" + of + "`, which then has none itself, and nothing else but a newline. It is read at start.",
		field: field,
	}
}
