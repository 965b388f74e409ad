package task

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

const (
	// DefaultPage is how many tasks a page has that names no limit, MaxPage the
	// most.
	DefaultPage, MaxPage = 50, 500
	// maxOffset bounds offset, for which all before it is read.
	maxOffset = 10_000
	// maxTotal is up to where the tasks that match are counted.
	maxTotal = 10_000
	// maxAnswer bounds a page in bytes, below what clients take at once.
	maxAnswer = 2 << 20
	maxFilter = 64 // entries of a list of a filter
)

// Query reads one task, or lists those that the caller has to do with.
func (s *Service) Query(ctx context.Context, c *Caller, q *aetherv1.TaskQuery) *aetherv1.TaskQueryResponse {
	answer := &aetherv1.TaskQueryResponse{RequestId: q.GetRequestId()}
	var err *wireerr.Error
	switch q.GetOp() {
	case aetherv1.TaskQuery_OP_TYPE_GET:
		var t *store.Task
		if t, err = s.visible(ctx, c, q.GetTaskId()); err == nil {
			answer.Task = s.Info(t)
		}
	case aetherv1.TaskQuery_OP_TYPE_LIST:
		err = s.list(ctx, c, q.GetFilter(), answer)
	default:
		err = wireerr.New(wireerr.InvalidArgument, "op %d of a query is unknown", q.GetOp())
	}
	if answer.Success = err == nil; err != nil {
		answer.Error = err.Error()
	}
	return answer
}

func (s *Service) list(ctx context.Context, c *Caller, p *aetherv1.TaskFilter, answer *aetherv1.TaskQueryResponse) *wireerr.Error {
	f, err := filterOf(p)
	if err != nil {
		return err
	}
	f.SeenBy, f.Subjects = c.seenBy(), c.subjects()
	switch kind := c.Principal.Kind; {
	case kind.WorkspaceScoped():
		if c.Principal.Workspace == "" || len(f.Workspaces) > 0 && f.Workspaces[0] != c.Principal.Workspace {
			return nil // nothing of theirs is to be seen there
		}
		f.Workspaces = []string{c.Principal.Workspace}
	case len(f.Workspaces) > 0:
		if !c.inside(f.Workspaces[0]) {
			return nil
		}
	case kind != acl.Bridge && !c.Principal.Workspaces.IsAll():
		if f.Workspaces = c.Principal.Workspaces.Names(); len(f.Workspaces) == 0 {
			return nil
		}
	}
	page, err := s.Page(ctx, f, p.GetPageToken(), int(p.GetOffset()), int(p.GetLimit()))
	if err != nil {
		return err
	}
	answer.Tasks, answer.NextPageToken, answer.TotalCount = page.Tasks, page.Next, page.Total
	return nil
}

// Page is one of a list of tasks.
type Page struct {
	Tasks []*aetherv1.TaskInfo
	// Next is the token of the following page; empty: this is the last.
	Next string
	// Total is how many there are, counted up to a bound.
	Total int32
}

// Page reads a page of the tasks of a filter. limit 0 is the default.
func (s *Service) Page(ctx context.Context, f store.TaskFilter, token string, offset, limit int) (*Page, *wireerr.Error) {
	switch {
	case limit < 0 || offset < 0:
		return nil, wireerr.New(wireerr.InvalidArgument, "limit and offset are not negative")
	case offset > maxOffset:
		return nil, wireerr.New(wireerr.InvalidArgument, "offset is above %d: use page_token", maxOffset)
	case limit == 0:
		limit = DefaultPage
	}
	limit = min(limit, MaxPage)
	key := listing(&f)
	after, err := decodePage(token, key)
	if err != nil {
		return nil, err
	}
	all, failed := s.o.Store.Tasks(ctx, f, after, offset+limit+1)
	if failed != nil {
		return nil, s.unread(failed)
	}
	total, failed := s.o.Store.CountTasks(ctx, f, maxTotal)
	if failed != nil {
		return nil, s.unread(failed)
	}
	all = all[min(offset, len(all)):]
	page := &Page{Total: int32(total)}
	size := 0
	for i := range all {
		info := s.Info(&all[i])
		if size += proto.Size(info); i == limit || i > 0 && size > maxAnswer {
			last := &all[i-1]
			page.Next = encodePage(store.TaskPage{CreatedAt: last.CreatedAt, ID: last.ID}, key)
			break
		}
		page.Tasks = append(page.Tasks, info)
	}
	return page, nil
}

func (s *Service) unread(err error) *wireerr.Error {
	if errors.Is(err, store.ErrText) {
		return wireerr.New(wireerr.InvalidArgument, "filter: a text is not valid UTF-8 or has a zero byte")
	}
	return s.away(err)
}

// keyBytes is how much of a listing's hash is in its page tokens.
const keyBytes = 8

// listing tells lists apart: a page of one is none of another.
func listing(f *store.TaskFilter) [keyBytes]byte {
	sum := sha256.Sum256(encode(f))
	return [keyBytes]byte(sum[:keyBytes])
}

func encodePage(p store.TaskPage, key [keyBytes]byte) string {
	b := binary.BigEndian.AppendUint64(key[:], uint64(p.CreatedAt.UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(append(b, p.ID...))
}

// decodePage reads a page token of a listing; empty is the beginning.
func decodePage(token string, key [keyBytes]byte) (store.TaskPage, *wireerr.Error) {
	if token == "" {
		return store.TaskPage{}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(token) > 2*maxID || len(b) <= keyBytes+8 {
		return store.TaskPage{}, wireerr.New(wireerr.InvalidArgument, "page_token is none of the gateway's")
	}
	if [keyBytes]byte(b[:keyBytes]) != key {
		return store.TaskPage{}, wireerr.New(wireerr.InvalidArgument, "page_token belongs to another list")
	}
	ms := binary.BigEndian.Uint64(b[keyBytes:])
	if ms > 1<<60 {
		return store.TaskPage{}, wireerr.New(wireerr.InvalidArgument, "page_token is none of the gateway's")
	}
	return store.TaskPage{CreatedAt: time.UnixMilli(int64(ms)), ID: strings.ToValidUTF8(string(b[keyBytes+8:]), "?")}, nil
}

// filterOf reads a filter; what is unset does not narrow.
func filterOf(p *aetherv1.TaskFilter) (store.TaskFilter, *wireerr.Error) {
	var f store.TaskFilter
	bad := func(format string, args ...any) (store.TaskFilter, *wireerr.Error) {
		return f, wireerr.New(wireerr.InvalidArgument, "filter: "+format, args...)
	}
	if len(p.GetStatuses()) > maxFilter || len(p.GetExcludeStatuses()) > maxFilter || len(p.GetExcludeTaskClasses()) > maxFilter {
		return bad("a list has more than %d entries", maxFilter)
	}
	statuses := p.GetStatuses()
	if one := p.GetStatus(); one != aetherv1.TaskStatus_TASK_STATUS_UNSPECIFIED {
		statuses = append([]aetherv1.TaskStatus{one}, statuses...)
	}
	for _, x := range statuses {
		states := statesOf(x)
		if len(states) == 0 {
			return bad("status %d is unknown", x)
		}
		f.States = append(f.States, states...)
	}
	for _, x := range p.GetExcludeStatuses() {
		states := statesOf(x)
		if len(states) == 0 {
			return bad("status %d is unknown", x)
		}
		f.NotStates = append(f.NotStates, states...)
	}
	for _, x := range append([]aetherv1.TaskClass{p.GetTaskClass()}, p.GetExcludeTaskClasses()...) {
		if !known(aetherv1.TaskClass_name, int32(x)) {
			return bad("task class %d is unknown", x)
		}
	}
	for _, x := range p.GetExcludeTaskClasses() {
		f.NotClasses = append(f.NotClasses, int32(x))
	}
	if !known(aetherv1.TaskPriority_name, int32(p.GetPriority())) || !known(aetherv1.TaskPriority_name, int32(p.GetMinPriority())) {
		return bad("a priority is unknown")
	}
	if p.GetStatusTimestampAfterUnixMs() < 0 {
		return bad("status_timestamp_after_unix_ms is negative")
	}
	if ms := p.GetStatusTimestampAfterUnixMs(); ms > 0 {
		f.ChangedAfter = time.UnixMilli(min(ms, 1<<60))
	}
	if p.GetWorkspace() != "" {
		f.Workspaces = []string{p.GetWorkspace()}
	}
	f.Type, f.SubjectType, f.SubjectID, f.AuthorityMode = p.GetTaskType(), p.GetSubjectType(), p.GetSubjectId(), p.GetAuthorityMode()
	f.GrantID, f.RootGrantID, f.ContextID = p.GetAuthorityGrantId(), p.GetRootAuthorityGrantId(), p.GetContextId()
	f.ParentID, f.Descendants = p.GetParentTaskId(), p.GetIncludeDescendants()
	f.Class, f.Priority, f.MinPriority = int32(p.GetTaskClass()), int32(p.GetPriority()), int32(p.GetMinPriority())
	f.Creator, f.CorrelationID, f.RootID = p.GetCreatorActor().GetPrincipalId(), p.GetCorrelationId(), p.GetRootTaskId()
	return f, nil
}
