package session

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Serve serves one connection from its first frame to its end. The error is
// the status of the stream.
func (m *Manager) Serve(st Stream) error {
	var s *Session
	var err error
	// In a goroutine that ends: this one stays as long as the session, and would
	// keep the stack that the handshake takes, twice as much as the rest needs.
	begun := make(chan struct{})
	m.wg.Go(func() {
		defer close(begun)
		s, err = m.begin(st)
	})
	if <-begun; err != nil {
		return err
	}
	err = s.run()
	m.went(s, err)
	m.o.Logger.Info("disconnected", "identity", s.identity, "session", s.id, "code", status.Code(err).String(), "reason", status.Convert(err).Message())
	return err
}

// begin takes a connection from its first frame to a session that is to be run.
func (m *Manager) begin(st Stream) (*Session, error) {
	if m.isDraining() {
		return nil, draining()
	}
	if err := m.glance(st); err != nil {
		return nil, err
	}
	if err := m.entry.admit(); err != nil {
		m.stats.TurnedAway.Add(1)
		m.turnedAway()
		return nil, err
	}
	init, err := m.receiveInit(st)
	if err == nil && m.isDraining() {
		err = draining()
	}
	var s *Session
	if err == nil {
		s, err = m.open(st, init)
	}
	if err != nil {
		m.stats.Refused.Add(1)
		m.refused(st, init, err)
		level := slog.LevelInfo
		if status.Code(err) == codes.ResourceExhausted { // an address that is slowed: there may be any number
			level = slog.LevelDebug
		}
		m.o.Logger.Log(st.Context(), level, "connection refused", "peer", st.Peer(), "code", status.Code(err).String(), "reason", status.Convert(err).Message())
		return nil, err
	}
	m.stats.Connects.Add(1)
	if s.resumed {
		m.stats.Resumed.Add(1)
	}
	m.o.Logger.Info("connected", "identity", s.identity, "session", s.id, "peer", st.Peer())
	m.came(s)
	return s, nil
}

type received struct {
	frame *aetherv1.UpstreamMessage
	err   error
}

// receiveInit waits for the first frame, which must be an init.
func (m *Manager) receiveInit(st Stream) (*aetherv1.InitConnection, error) {
	first := make(chan received, 1)
	m.wg.Go(func() {
		frame, err := st.Recv()
		first <- received{frame, err}
	})
	timeout := time.NewTimer(m.o.InitTimeout)
	defer timeout.Stop()
	select {
	case r := <-first:
		if r.err != nil {
			if _, malformed := errors.AsType[*MalformedError](r.err); malformed {
				return nil, status.Error(codes.InvalidArgument, "the first frame is malformed")
			}
			if status.Code(r.err) == codes.Unknown {
				return nil, status.Error(codes.InvalidArgument, "the stream ended before its first frame")
			}
			return nil, r.err
		}
		init := r.frame.GetInit()
		if init == nil {
			return nil, status.Error(codes.InvalidArgument, "the first frame must be init")
		}
		return init, nil
	case <-timeout.C:
		return nil, status.Errorf(codes.DeadlineExceeded, "no init within %s", m.o.InitTimeout)
	case <-st.Context().Done():
		return nil, status.FromContextError(st.Context().Err()).Err()
	}
}

// claimed returns the identity that an init frame claims.
func claimed(init *aetherv1.InitConnection) (auth.Identity, error) {
	switch id := init.GetIdentity().(type) {
	case *aetherv1.InitConnection_Agent:
		return auth.Identity{Kind: acl.Agent, Workspace: id.Agent.GetWorkspace(), Implementation: id.Agent.GetImplementation(), Specifier: id.Agent.GetSpecifier()}, nil
	case *aetherv1.InitConnection_Task:
		kind := acl.UniqueTask
		if id.Task.GetUniqueSpecifier() == "" {
			kind = acl.Task
		}
		return auth.Identity{Kind: kind, Workspace: id.Task.GetWorkspace(), Implementation: id.Task.GetImplementation(), Specifier: id.Task.GetUniqueSpecifier()}, nil
	case *aetherv1.InitConnection_User:
		return auth.Identity{Kind: acl.User, UserID: id.User.GetUserId(), Window: id.User.GetWindowId(), Workspace: init.GetWorkspace()}, nil
	case *aetherv1.InitConnection_Orchestrator:
		return auth.Identity{Kind: acl.Orchestrator, Implementation: id.Orchestrator.GetImplementation(), Specifier: id.Orchestrator.GetSpecifier()}, nil
	case *aetherv1.InitConnection_WorkflowEngine:
		return auth.Identity{Kind: acl.WorkflowEngine, Specifier: id.WorkflowEngine.GetInstanceId()}, nil
	case *aetherv1.InitConnection_MetricsBridge:
		return auth.Identity{Kind: acl.MetricsBridge, Specifier: id.MetricsBridge.GetInstanceId()}, nil
	case *aetherv1.InitConnection_Bridge:
		return auth.Identity{Kind: acl.Bridge, Implementation: id.Bridge.GetImplementation(), Specifier: id.Bridge.GetSpecifier()}, nil
	case *aetherv1.InitConnection_Service:
		return auth.Identity{Kind: acl.Service, Implementation: id.Service.GetImplementation(), Specifier: id.Service.GetSpecifier()}, nil
	}
	return auth.Identity{}, status.Error(codes.InvalidArgument, "init names no identity")
}

// open authenticates, takes the lease and subscribes. On an error nothing is
// left behind.
func (m *Manager) open(st Stream, init *aetherv1.InitConnection) (*Session, error) {
	ctx := st.Context()
	id, err := claimed(init)
	if err != nil {
		return nil, err
	}
	principal, credential, err := m.loginIn(ctx, st, init, id)
	if err != nil {
		return nil, err
	}
	extensions, err := negotiate(init.GetExtensions())
	if err != nil {
		return nil, err
	}
	mailbox, err := m.mailboxOptions(init.GetDelivery())
	if err == nil {
		err = checkProfiles(init)
	}
	if err != nil {
		return nil, err
	}
	taken, err := filters(init.GetDelivery())
	if err != nil {
		return nil, err
	}
	select {
	case <-m.o.Router.Ready():
	default:
		return nil, status.Error(codes.Unavailable, "the gateway is starting; connect again in a moment")
	}
	if err := m.enter(ctx, &principal, credential); err != nil {
		return nil, err
	}
	s := &Session{
		m: m, st: st, id: uuid.NewString(), principal: principal,
		extended: init.GetDelivery() != nil, since: m.o.Now(), extensions: extensions,
		ended: make(chan struct{}), flush: make(chan struct{}), pumped: make(chan struct{}), rests: make(chan struct{}), lull: make(chan struct{}, 1), left: make(chan struct{}),
	}
	resume := resumable(init)
	if id.Kind == acl.Task && id.Specifier == "" {
		if id, err = m.assign(ctx, s, id, resume, credential.Run.Specifier); err != nil {
			return nil, err
		}
	}
	s.identity, s.kind, s.claim = id.String(), id.Kind, id
	if err := refusedFilters(m.o.Router.MayFilter(&s.principal, taken)); err != nil {
		return nil, err
	}
	era, _ := m.o.Router.Spaces().Check(principal.Workspace)
	s.place.Store(&place{principal.Workspace, era})
	s.life.held.Store(hold(credential, m.o.Now()))
	ends := m.o.Router.Ends() // before the lease: what comes later is not noted
	grant, err := m.claim(ctx, s, resume)
	if err != nil {
		return nil, err
	}
	if s.account, err = m.account(ctx, s, credential); err != nil {
		m.release(s)
		return nil, err
	}
	mailbox.Lagged = s.lagged
	s.box = delivery.NewMailbox(mailbox)
	s.sender = m.o.Router.NewSender(&s.principal, s.identity, s.lease, s.box, s.slow)
	s.sender.Limit(s.account)
	s.sender.OnRefused(func(target string, err *wireerr.Error) { s.record("send", target, err) })
	if err := m.admit(ctx, &principal, id, credential.ExpiresAt); err != nil {
		m.release(s)
		return nil, err
	}
	reads := subscriptions(&s.principal, id)
	s.hears = slices.Concat(reads.Exclusive, reads.Shared)
	if reads.Workers != "" {
		s.hears = append(s.hears, reads.Workers)
	}
	s.events = reads.Events
	reads.Identity, reads.Lease, reads.Echo, reads.Gap = s.identity, s.lease, init.GetDelivery().GetEcho(), s.gap
	reads.Filters, reads.Observer = taken, s.principal
	reads.Workspace, reads.Ends = principal.Workspace, ends
	reads.Anywhere = !s.kind.WorkspaceScoped()
	reads.Watermark, reads.Exact = grant.Watermark, grant.Exact
	if s.sub, err = m.subscribe(ctx, s, reads); err != nil {
		m.release(s)
		m.o.Logger.Error("a session could not be subscribed", "identity", s.identity, "error", err)
		return nil, unavailable(time.Second, "the subscriptions could not be made; connect again")
	}
	if err := m.enlist(ctx, s, init, credential); err != nil {
		s.leave(cause{})
		return nil, err
	}
	if err := m.add(s); err != nil {
		s.leave(cause{})
		return nil, err
	}
	if s.lost() || s.isRevoked() || s.dismissed() { // before the manager could be told
		s.leave(cause{})
		return nil, s.why.err
	}
	s.joinTasks(init)
	return s, nil
}

// authenticate verifies a credential and binds an identity to it. Its errors are
// those of package auth.
func (m *Manager) authenticate(ctx context.Context, presented auth.Presented, id auth.Identity) (acl.Principal, *auth.Credential, error) {
	credential, err := m.o.Verifier.Verify(ctx, presented.Token())
	if err != nil {
		return acl.Principal{}, nil, err
	}
	principal, err := credential.Bind(id)
	if err != nil {
		return acl.Principal{}, nil, err
	}
	return principal, credential, m.revoked(credential, id.String())
}

// revoked returns an error if a credential counts no more.
func (m *Manager) revoked(c *auth.Credential, identity string) error {
	if c.Withdrawn() {
		return auth.ErrRevoked
	}
	if m.o.Revocations == nil {
		return nil
	}
	return m.o.Revocations.Revoked(c, identity)
}

// admit records what a user's token says of their membership, and refuses a
// workspace that they are kept out of all the same.
func (m *Manager) admit(ctx context.Context, p *acl.Principal, id auth.Identity, until time.Time) error {
	if err := m.learn(ctx, p, id, until); err != nil {
		return status.Error(codes.Unavailable, "the membership could not be stored; connect again")
	}
	if id.Kind == acl.User && p.Workspace != "" && !m.o.Router.Members().InWorkspace(id.UserID, p.Workspace) {
		return status.Errorf(codes.PermissionDenied, "the user is no member of workspace %q", p.Workspace)
	}
	return nil
}

// learn records the workspaces of a user's verified credential.
func (m *Manager) learn(ctx context.Context, p *acl.Principal, id auth.Identity, until time.Time) error {
	if id.Kind != acl.User {
		return nil
	}
	err := m.o.Router.Members().Learn(ctx, id.UserID, p.Workspaces.Names(), until)
	if err != nil {
		m.o.Logger.Warn("a membership could not be stored", "user", id.UserID, "error", err)
	}
	return err
}

// negotiate answers the extensions that a client declares. There are none
// that the gateway supports.
func negotiate(declared []*aetherv1.ExtensionDeclaration) ([]*aetherv1.NegotiatedExtension, error) {
	// The answer repeats them, and must fit into what a client takes at once.
	const maxExtensions, maxExtensionText = 64, 512
	if len(declared) > maxExtensions {
		return nil, status.Errorf(codes.InvalidArgument, "%d extensions are declared, %d are allowed", len(declared), maxExtensions)
	}
	var list []*aetherv1.NegotiatedExtension
	for _, d := range declared {
		if n := len(d.GetUri()) + len(d.GetVersion()); n > maxExtensionText {
			return nil, status.Errorf(codes.InvalidArgument, "an extension's URI and version have %d bytes, %d are allowed", n, maxExtensionText)
		}
		if d.GetRequired() {
			return nil, status.Errorf(codes.FailedPrecondition, "extension %.128q is required by the client and not supported", d.GetUri())
		}
		list = append(list, &aetherv1.NegotiatedExtension{Uri: d.GetUri(), Version: d.GetVersion(), RejectionReason: "not supported"})
	}
	return list, nil
}

func (m *Manager) mailboxOptions(d *aetherv1.DeliveryOptions) (delivery.Options, error) {
	o := delivery.Options{MaxUnacked: m.o.MaxUnacked, QueueBytes: m.o.QueueBytes}
	switch d.GetAckMode() {
	case aetherv1.AckMode_ACK_MODE_UNSPECIFIED, aetherv1.AckMode_ACK_MODE_AUTO:
	case aetherv1.AckMode_ACK_MODE_CLIENT:
		o.Mode = delivery.Client
	default:
		return o, status.Errorf(codes.InvalidArgument, "ack_mode %d is unknown", d.GetAckMode())
	}
	if n := d.GetMaxUnacked(); n > 0 {
		o.MaxUnacked = int(min(n, uint32(m.o.MaxWindow)))
	}
	return o, nil
}

// subscriptions returns what a principal reads.
func subscriptions(p *acl.Principal, id auth.Identity) router.Reads {
	var reads router.Reads
	if !p.Address.IsZero() {
		reads.Exclusive = []string{p.Address.String()}
	}
	share := func(a address.Address, err error) {
		if err == nil {
			reads.Shared = append(reads.Shared, a.String())
		}
	}
	switch p.Kind {
	case acl.Agent:
		share(address.AllAgents(p.Workspace))
		share(address.Progress(p.Workspace))
	case acl.Task:
		if a, err := address.TaskBroadcast(p.Workspace, id.Implementation); err == nil {
			reads.Workers = a.String()
		}
	case acl.User:
		if p.Workspace != "" {
			share(address.AllUsers(p.Workspace))
			share(address.UserWorkspace(id.UserID, p.Workspace))
			share(address.Progress(p.Workspace))
		}
	case acl.WorkflowEngine:
		reads.Events = p.Workspaces
	case acl.MetricsBridge:
		reads.Shared = []string{address.MetricReceiver().String()}
	}
	return reads
}
