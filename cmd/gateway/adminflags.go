package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/aether-gateway/gateway/client"
	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/version"
)

// adminFlags say where the gateway is and by which operator credential to talk
// to it.
type adminFlags struct {
	Addr    string `placeholder:"HOST:PORT" help:"The gRPC address of any gateway of the deployment; of several with commas between them, the first that answers (default: AETHER_ADDR, AETHER_GRPC_ADDR, the data directory's gateway, 127.0.0.1:50051)."`
	Token   string `placeholder:"JWT" help:"A credential of kind operator (default: AETHER_TOKEN, else the data directory's)."`
	DataDir string `placeholder:"DIR" help:"The data directory of gateway dev (default: .aether)."`
	Timeout string `placeholder:"DURATION" help:"How long to wait for the gateway (default: 5s)."`
	tlsFlags
}

// outputFlag chooses the form of what a command prints.
type outputFlag struct {
	Output string `default:"table" enum:"table,json" help:"table, or json: an array of objects."`
}

// operator is a connection to a gateway's operators' service.
type operator struct {
	adminv1.AdminClient
	p    *program
	conn *grpc.ClientConn
	to   *target
	// patience bounds each call.
	patience time.Duration
}

// operate connects to the first gateway that answers.
func (f *adminFlags) operate(ctx context.Context, p *program) (*operator, error) {
	as := clientFlags{Addr: f.Addr, Timeout: f.Timeout, keyFlags: keyFlags{DataDir: f.DataDir}}
	t := &target{name: p.name(), keyFrom: as.source(p)}
	var err error
	if t.addr, t.from, err = as.address(p); err != nil {
		return nil, err
	}
	patience, err := as.patience(reachTimeout)
	if err != nil {
		return nil, err
	}
	config, own, err := f.transport(p)
	if err != nil {
		return nil, err
	}
	token, err := f.credential(p, t, own)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	addrs := strings.Split(t.addr, ",")
	for i := 0; ; i++ {
		o := &operator{p: p, to: t, patience: patience}
		err := o.dial(ctx, addrs[i%len(addrs)], token, client.Transport(addrs[i%len(addrs)], config, f.Plaintext), patience/time.Duration(len(addrs)))
		if err == nil {
			return o, nil
		}
		if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded || !waitFor(ctx, redialPause) {
			return nil, o.explain(err)
		}
	}
}

// redialPause is between two attempts to reach a gateway.
const redialPause = 200 * time.Millisecond

func waitFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// credential is the operator's token; "" if a certificate takes its place.
func (f *adminFlags) credential(p *program, t *target, certificate bool) (string, error) {
	var token string
	switch env := p.getenv("AETHER_TOKEN"); {
	case f.Token != "":
		token, t.token = f.Token, "--token"
	case env != "":
		token, t.token = env, "AETHER_TOKEN"
	case certificate:
		t.token = certificateFlag
	default:
		dir := (&keyFlags{DataDir: f.DataDir}).dataDir(p)
		var err error
		if token, err = readToken(filepath.Join(dir, devOperatorFile)); err != nil {
			return "", fmt.Errorf("no operator credential: give one with --token or AETHER_TOKEN, or name the data directory of gateway dev with --data-dir; "+
				"`%s token create --kind operator` makes one with the gateway's key", t.name)
		}
		t.token = filepath.Join(dir, devOperatorFile)
	}
	return strings.TrimPrefix(strings.TrimSpace(token), "Bearer "), nil
}

// dial connects to one gateway and sees whether it takes the credential.
func (o *operator) dial(ctx context.Context, addr, token string, transport grpccredentials.TransportCredentials, patience time.Duration) error {
	identified := func(ctx context.Context) context.Context {
		if token == "" {
			return ctx
		}
		return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	conn, err := grpc.NewClient(addr,
		grpc.WithTransportCredentials(transport), grpc.WithDisableServiceConfig(),
		grpc.WithUserAgent("gateway-cli/"+version.Version()),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, c *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return call(identified(ctx), method, req, reply, c, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, c *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(identified(ctx), desc, c, method, opts...)
		}),
	)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := adminv1.NewAdminClient(conn)
	if _, err := c.ServerInfo(ctx, &adminv1.ServerInfoRequest{}); err != nil {
		_ = conn.Close()
		return err
	}
	o.AdminClient, o.conn = c, conn
	return nil
}

func (o *operator) close() { _ = o.conn.Close() }

// explain says what to do about a call that failed.
func (o *operator) explain(err error) error {
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	create := "`" + o.to.name + " token create --kind operator`"
	todo, text := "", st.Message()
	switch st.Code() {
	case codes.Unauthenticated:
		todo = "the credential of " + o.to.token + " is refused by the gateway at " + o.to.place() + ": " + create + " with the gateway's key makes another" + o.unset()
	case codes.PermissionDenied:
		if strings.Contains(st.Message(), "kind operator") {
			todo = "the credential of " + o.to.token + " is not an operator's: " + create + " with the gateway's key makes one" + o.unset()
		}
	case codes.Unavailable:
		if answer, ok := strings.CutPrefix(text, "unexpected HTTP status code received from server: "); ok {
			// A balancer's own answer; its page follows, for a browser.
			answer, _, _ = strings.Cut(answer, ";")
			text = "the balancer at " + o.to.place() + " has no gateway that can serve now: " + answer
			todo = "/readyz of a gateway's operators' port, and its log, say why; --addr with the address of a gateway goes around the balancer"
		} else if strings.Contains(st.Message(), "server preface") {
			todo = "if the gateway at " + o.to.place() + " serves TLS, name the authority of its certificate with --ca or AETHER_CA"
		} else if strings.Contains(st.Message(), "connection error:") || strings.Contains(st.Message(), "name resolver error") {
			todo = "is a gateway running at " + o.to.place() + "? " + o.to.howToStart() + ", or name another with --addr or AETHER_ADDR"
		}
	case codes.DeadlineExceeded:
		todo = "the gateway at " + o.to.place() + " did not answer within " + o.patience.String() + "; --timeout gives it longer"
	case codes.Unimplemented:
		todo = "the gateway at " + o.to.place() + " does not know this command: it is of another version than this program"
	}
	if todo != "" {
		text += "\n" + todo
	}
	if st.Code() == codes.InvalidArgument {
		return usageError{text}
	}
	return errors.New(text)
}

// unset is the usual way out of a variable that was set for another command.
func (o *operator) unset() string {
	if o.to.token != "AETHER_TOKEN" {
		return ""
	}
	return ", or `unset AETHER_TOKEN` to use that of the data directory"
}

// once makes a call within the time that it may take.
func once[Q, R any](ctx context.Context, o *operator, call func(context.Context, Q, ...grpc.CallOption) (R, error), request Q) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	response, err := call(ctx, request)
	if err != nil {
		return response, o.explain(err)
	}
	return response, nil
}

// with runs an operator's command, until it has done or a signal comes: do gets
// a connection to the first gateway that answers.
func (f *adminFlags) with(p *program, do func(context.Context, *operator) error) error {
	ctx, cancel := p.untilSignal()
	defer cancel()
	o, err := f.operate(ctx, p)
	if err != nil {
		return err
	}
	defer o.close()
	return do(ctx, o)
}

// lister asks for a page of a list.
type lister interface {
	proto.Message
	GetPageSize() int32
}

// page is a page of a list.
type page interface{ GetNextPageToken() string }

// everything is the extent of a list without an end.
const everything = 0

// gather makes a call for one page after the other and returns their rows: at
// most limit, or everything. The request's own page size, if it has one, bounds
// the pages; it is left with the token of the page that would come next.
func gather[Q lister, R page, M any](
	ctx context.Context, o *operator, call func(context.Context, Q, ...grpc.CallOption) (R, error), request Q, limit int, rows func(R) []M,
) (all []M, err error) {
	m, most := request.ProtoReflect(), int(request.GetPageSize())
	token, size := m.Descriptor().Fields().ByName("page_token"), m.Descriptor().Fields().ByName("page_size")
	for {
		if limit != everything {
			left := limit - len(all)
			if most > 0 {
				left = min(left, most)
			}
			m.Set(size, protoreflect.ValueOfInt32(int32(min(left, maxPage))))
		}
		page, err := once(ctx, o, call, request)
		if err != nil {
			return nil, err
		}
		all = append(all, rows(page)...)
		m.Set(token, protoreflect.ValueOfString(page.GetNextPageToken()))
		if page.GetNextPageToken() == "" || limit != everything && len(all) >= limit {
			return all, nil
		}
	}
}

// maxPage is the most rows that a gateway gives at once.
const maxPage = 500

// ended is the error of a command whose stream has ended: none if that is what
// whoever called it wished.
func (o *operator) ended(ctx context.Context, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), errInterrupted):
		return nil
	case errors.Is(err, io.EOF):
		return errors.New("the gateway has ended the stream")
	}
	return o.explain(err)
}

// incomplete warns of gateways that did not answer, and fails the command: what
// it printed is not all.
func (o *operator) incomplete(unanswered []string) error {
	if len(unanswered) == 0 {
		return nil
	}
	fmt.Fprintf(o.p.stderr, "gateway: not all: no answer from %s; if a gateway has just died, try again in 5 s\n", strings.Join(unanswered, ", "))
	return silentError{}
}
