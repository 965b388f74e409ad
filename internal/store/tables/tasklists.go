package tables

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

// taskQuery collects the conditions of a list of tasks.
type taskQuery struct {
	with  string
	where []string
	args  []any
	texts []string
}

// arg adds an argument and returns its name in the text.
func (q *taskQuery) arg(v any) string {
	if s, ok := v.(string); ok {
		q.texts = append(q.texts, s)
	}
	q.args = append(q.args, v)
	return fmt.Sprintf("$%d", len(q.args))
}

// is narrows to a column's value, if there is one asked for.
func (q *taskQuery) is(column, value string) {
	if value != "" {
		q.where = append(q.where, column+" = "+q.arg(value))
	}
}

func (q *taskQuery) number(column, op string, value int64) {
	if value != 0 {
		q.where = append(q.where, column+op+q.arg(value))
	}
}

// among narrows to some values of a column, if any are asked for.
func among[T ~string | ~int32](q *taskQuery, column, op string, values []T) {
	if len(values) == 0 {
		return
	}
	names := make([]string, len(values))
	for i, v := range values {
		switch x := any(v).(type) {
		case int32:
			names[i] = q.arg(int64(x))
		default:
			names[i] = q.arg(fmt.Sprint(v))
		}
	}
	q.where = append(q.where, column+op+"("+strings.Join(names, ", ")+")")
}

// seen narrows to what some principals have to do with.
func (q *taskQuery) seen(f *store.TaskFilter) {
	var any []string
	for _, who := range f.SeenBy {
		for _, column := range []string{"creator", "assigned_to"} {
			if below, ok := behind(who); ok && strings.HasSuffix(who, "::") {
				any = append(any, column+" >= "+q.arg(who)+" and "+column+" < "+q.arg(below))
			} else {
				any = append(any, column+" = "+q.arg(who))
			}
		}
	}
	for _, s := range f.Subjects {
		any = append(any, "subject_type = "+q.arg(s[0])+" and subject_id = "+q.arg(s[1]))
	}
	if len(any) > 0 {
		q.where = append(q.where, "("+strings.Join(any, " or ")+")")
	}
}

// descendants are those of a task, at any depth: a task's parent is there before
// it, so that there are no circles.
const descendants = `with recursive below (id) as (
		select id from tasks where parent_id <> '' and parent_id = %[1]s
		union select t.id from tasks t join below b on t.parent_id = b.id where t.parent_id <> '') `

func newTaskQuery(f *store.TaskFilter) (*taskQuery, error) {
	q := &taskQuery{}
	if f.ParentID != "" && f.Descendants {
		q.with = fmt.Sprintf(descendants, q.arg(f.ParentID))
		q.where = append(q.where, "id in (select id from below)")
	} else {
		q.is("parent_id", f.ParentID)
	}
	q.seen(f)
	if f.Around != "" {
		who := q.arg(f.Around)
		q.where = append(q.where, "(creator = "+who+" or assigned_to = "+who+" or target = "+who+")")
	}
	among(q, "id", " in ", f.IDs)
	among(q, "workspace", " in ", f.Workspaces)
	among(q, "state", " in ", f.States)
	among(q, "state", " not in ", f.NotStates)
	among(q, "mode", " in ", f.Modes)
	among(q, "class", " not in ", f.NotClasses)
	for _, column := range [...][2]string{ // in one order, so that texts repeat
		{"task_type", f.Type},
		{"creator", f.Creator},
		{"target", f.Target},
		{"assigned_to", f.AssignedTo},
		{"holder", f.Holder},
		{"holder_session", f.HolderSession},
		{"holder_gateway", f.HolderGateway},
		{"launch", f.Launch},
		{"implementation", f.Implementation},
		{"root_id", f.RootID},
		{"context_id", f.ContextID},
		{"correlation_id", f.CorrelationID},
		{"subject_type", f.SubjectType},
		{"subject_id", f.SubjectID},
		{"authority_mode", f.AuthorityMode},
		{"grant_id", f.GrantID},
		{"root_grant_id", f.RootGrantID},
	} {
		q.is(column[0], column[1])
	}
	q.number("class", " = ", int64(f.Class))
	q.number("priority", " = ", int64(f.Priority))
	q.number("priority", " >= ", int64(f.MinPriority))
	q.number("changed_at", " > ", millis(f.ChangedAfter))
	if !f.CreatedBefore.IsZero() {
		q.where = append(q.where, "created_at < "+q.arg(millis(f.CreatedBefore)))
	}
	q.number("created_at", " > ", millis(f.CreatedAfter))
	if f.Launches {
		q.where = append(q.where, "launch <> ''")
	}
	if f.Active {
		q.where = append(q.where, "ended_at = 0")
	}
	return q, checkTexts(q.texts...)
}

// text makes the query of what is selected and what stands behind the
// conditions.
func (q *taskQuery) text(selected, rest string) string {
	where := ""
	if len(q.where) > 0 {
		where = "where " + strings.Join(q.where, " and ")
	}
	return q.with + selected + where + rest
}

// Tasks implements [store.Tasks].
func (t *Tables) Tasks(ctx context.Context, f store.TaskFilter, after store.TaskPage, limit int) ([]store.Task, error) {
	q, err := newTaskQuery(&f)
	if err == nil {
		err = checkTexts(after.ID)
	}
	if err != nil {
		return nil, err
	}
	if after != (store.TaskPage{}) {
		q.where = append(q.where, "(created_at, id) < ("+q.arg(millis(after.CreatedAt))+", "+q.arg(after.ID)+")")
	}
	return t.listTasks(ctx, q.text(selectTasks, " order by created_at desc, id desc limit "+q.arg(max(limit, 1))), q.args)
}

// QueuedTasks implements [store.Tasks].
func (t *Tables) QueuedTasks(ctx context.Context, f store.TaskFilter, limit int) ([]store.Task, error) {
	f.States = []store.TaskState{store.TaskQueued}
	q, err := newTaskQuery(&f)
	if err != nil {
		return nil, err
	}
	q.where = append(q.where, "due_at = 0") // one that is due later is not yet to be handed out
	return t.listTasks(ctx, q.text(selectTasks, " order by priority desc, created_at, id limit "+q.arg(max(limit, 1))), q.args)
}

func (t *Tables) listTasks(ctx context.Context, query string, args []any) (all []store.Task, err error) {
	err = t.db.Read(ctx, "list tasks", func(r Reader) (err error) {
		all, err = readTasks(r, query, args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// ActiveTasksOf implements [store.Tasks].
func (t *Tables) ActiveTasksOf(ctx context.Context, identities []string, limit int) ([]store.Task, error) {
	if len(identities) == 0 {
		return nil, nil
	}
	if err := checkTexts(identities...); err != nil {
		return nil, err
	}
	q := &taskQuery{}
	names := make([]string, len(identities))
	for i, identity := range identities {
		names[i] = q.arg(identity)
	}
	in := " in (" + strings.Join(names, ", ") + ")"
	q.where = append(q.where, "ended_at = 0", "(assigned_to"+in+" or target"+in+")")
	return t.listTasks(ctx, q.text(selectTasks, " order by priority desc, created_at, id limit "+q.arg(max(limit, 1))), q.args)
}

// CountTasks implements [store.Tasks].
func (t *Tables) CountTasks(ctx context.Context, f store.TaskFilter, most int) (int, error) {
	q, err := newTaskQuery(&f)
	if err != nil {
		return 0, err
	}
	query := q.text("select count(*) from (select 1 from tasks ", " limit "+q.arg(max(most, 1))+") as counted")
	var n int64
	err = t.db.Read(ctx, "count tasks", func(r Reader) error {
		_, err := one(r, query, q.args, &n)
		return err
	})
	return int(n), err
}

const (
	dueTasks      = selectTasks + `where due_at > 0 and due_at <= $1 order by due_at limit $2`
	queuedTargets = `select distinct target from tasks
		where state = 'queued' and mode = 'targeted' and due_at = 0 and target > $1 order by target limit $2`
	queuedPools = `select distinct workspace, implementation from tasks
		where state = 'queued' and mode = 'pool' and due_at = 0 and (workspace, implementation) > ($1, $2)
		order by workspace, implementation limit $3`
	taskGateways = `select distinct holder_gateway from tasks where ended_at = 0 and holder_gateway <> ''`
	untoldTasks  = selectTasks + `where told < rev and changed_at < $1 order by changed_at limit $2`
)

// DueTasks implements [store.Tasks].
func (t *Tables) DueTasks(ctx context.Context, now time.Time, limit int) ([]store.Task, error) {
	return t.listTasks(ctx, dueTasks, []any{millis(now), max(limit, 1)})
}

// UntoldTasks implements [store.Tasks].
func (t *Tables) UntoldTasks(ctx context.Context, before time.Time, limit int) ([]store.Task, error) {
	return t.listTasks(ctx, untoldTasks, []any{millis(before), max(limit, 1)})
}

// QueuedTargets implements [store.Tasks].
func (t *Tables) QueuedTargets(ctx context.Context, after string, limit int) ([]string, error) {
	if err := checkTexts(after); err != nil {
		return nil, err
	}
	return t.texts(ctx, "list whose tasks are queued", queuedTargets, after, max(limit, 1))
}

// QueuedPools implements [store.Tasks].
func (t *Tables) QueuedPools(ctx context.Context, after store.Pool, limit int) ([]store.Pool, error) {
	if err := checkTexts(after.Workspace, after.Implementation); err != nil {
		return nil, err
	}
	var all []store.Pool
	err := t.db.Read(ctx, "list pools with queued tasks", func(r Reader) error {
		all = nil
		return r.Query(queuedPools, []any{after.Workspace, after.Implementation, max(limit, 1)}, func(scan Scan) error {
			var p store.Pool
			err := scan(&p.Workspace, &p.Implementation)
			all = append(all, p)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// TaskGateways implements [store.Tasks].
func (t *Tables) TaskGateways(ctx context.Context) ([]string, error) {
	return t.texts(ctx, "list gateways that hold tasks", taskGateways)
}

// texts reads rows of one text.
func (t *Tables) texts(ctx context.Context, what, query string, args ...any) ([]string, error) {
	var all []string
	err := t.db.Read(ctx, what, func(r Reader) error {
		all = nil
		return r.Query(query, args, func(scan Scan) error {
			var text string
			err := scan(&text)
			all = append(all, text)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}
