package tables

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/google/uuid"
)

var _ store.Tasks = (*Tables)(nil)

const (
	// fixedColumns never change, movingColumns do.
	fixedColumns = `id, task_type, workspace, creator, target, implementation, mode,
		parent_id, root_id, context_id, correlation_id, idempotency_key, class, priority, max_attempts,
		authority_mode, subject_type, subject_id, root_subject_type, root_subject_id, grant_id, root_grant_id, parent_grant_id,
		spec, created_at`
	movingColumns = `state, attempt, assigned_to, holder, holder_session, holder_gateway, launch, token_hash, profile, reason,
		wait, resume_to, missed,
		changed_at, started_at, ended_at, disconnected_at, paused_at, due_at, rev, told, step`

	// Lists are read without the payloads, which may be large.
	selectTasks   = `select ` + fixedColumns + `, ` + movingColumns + `, heartbeat_at from tasks `
	selectPayload = `select payload from tasks where id = $1`
	selectTask    = selectTasks + `where id = $1`
	selectByToken = selectTasks + `where token_hash = $1 and token_hash <> ''`
	selectByKey   = selectTasks + `where creator = $1 and workspace = $2 and idempotency_key = $3 and idempotency_key <> ''`
	selectLaunch  = selectTasks + `where launch = $1 and launch <> '' and ended_at = 0`

	insertTask = `insert into tasks (` + fixedColumns + `, ` + movingColumns + `, heartbeat_at, payload)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25,
			$26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, 0, $48)
		on conflict do nothing`
	// updateTask is guarded by the revision; the same change, again after its
	// answer was lost, finds itself.
	updateTask = `update tasks set state = $3, attempt = $4, assigned_to = $5, holder = $6, holder_session = $7, holder_gateway = $8,
			launch = $9, token_hash = $10, profile = $11, reason = $12, wait = $13, resume_to = $14, missed = $15,
			changed_at = $16, started_at = $17, ended_at = $18, disconnected_at = $19, paused_at = $20, due_at = $21,
			rev = $2 + 1, told = $22, step = $23
		where id = $1 and (rev = $2 or rev = $2 + 1 and step = $23)`
	// onlyLaunch keeps a launch that comes back from being the second one.
	onlyLaunch = ` and not exists (select 1 from tasks o where o.launch = $9 and o.launch <> '' and o.ended_at = 0 and o.id <> $1)`
	tellTask   = `update tasks set told = $2 where id = $1 and told < $2`

	insertWait    = `insert into task_waits (task, awaited) values ($1, $2) on conflict do nothing`
	deleteWaits   = `delete from task_waits where task = $1`
	selectWaiters = `select task from task_waits where awaited = $1 and task > $2 order by task limit $3`

	expireTasks = `delete from tasks where ended_at > 0 and ended_at < $1 and id in
		(select id from tasks where ended_at > 0 and ended_at < $1 limit $2)`
	// Waits that nobody waits any more; a task that has ended is awaited as long
	// as it is there.
	expireWaits = `delete from task_waits where (task, awaited) in
		(select w.task, w.awaited from task_waits w left join tasks t on t.id = w.task where t.id is null limit $1)`
	purgedTasks = `delete from tasks where id in (select id from tasks where workspace = $1 limit $2)
		and exists (select 1 from workspaces where name = $1 and deleted_at is not null)`
)

var tellTasks = &Bulk{
	Row: `update tasks set told = $2 where id = $1 and told < $2`,
	Rows: `update tasks t set told = u.rev from unnest($1::text[], $2::bigint[]) as u (id, rev)
		where t.id = u.id and t.told < u.rev`,
}

var beatTasks = &Bulk{
	Row: `update tasks set heartbeat_at = $2 where id = $1 and heartbeat_at < $2`,
	Rows: `update tasks t set heartbeat_at = u.at from unnest($1::text[], $2::bigint[]) as u (id, at)
		where t.id = u.id and t.heartbeat_at < u.at`,
}

// readTasks reads rows of selectTasks.
func readTasks(r Reader, query string, args ...any) (all []store.Task, err error) {
	err = r.Query(query, args, func(scan Scan) error {
		var t store.Task
		var mode, state, resume, step string
		var created, changed, started, ended, lost, paused, due, beat int64
		err := scan(&t.ID, &t.Type, &t.Workspace, &t.Creator, &t.Target, &t.Implementation, &mode,
			&t.ParentID, &t.RootID, &t.ContextID, &t.CorrelationID, &t.IdempotencyKey, &t.Class, &t.Priority, &t.MaxAttempts,
			&t.Grant.Mode, &t.Grant.SubjectType, &t.Grant.SubjectID, &t.Grant.RootSubjectType, &t.Grant.RootSubjectID,
			&t.Grant.GrantID, &t.Grant.RootGrantID, &t.Grant.ParentGrantID, &t.Spec, &created,
			&state, &t.Attempt, &t.AssignedTo, &t.Holder, &t.HolderSession, &t.HolderGateway, &t.Launch, &t.TokenHash, &t.Profile, &t.Reason, &t.Wait, &resume, &t.Missed,
			&changed, &started, &ended, &lost, &paused, &due, &t.Rev, &t.Told, &step, &beat)
		t.Mode, t.State, t.ResumeTo = store.TaskMode(mode), store.TaskState(state), store.TaskState(resume)
		t.CreatedAt, t.ChangedAt, t.StartedAt, t.EndedAt = timeOf(created), timeOf(changed), timeOf(started), timeOf(ended)
		t.DisconnectedAt, t.PausedAt, t.DueAt, t.HeartbeatAt = timeOf(lost), timeOf(paused), timeOf(due), timeOf(beat)
		all = append(all, t)
		return err
	})
	return all, err
}

// readTask reads one.
func readTask(r Reader, query string, args ...any) (t store.Task, ok bool, err error) {
	all, err := readTasks(r, query, args...)
	if err != nil || len(all) == 0 {
		return store.Task{}, false, err
	}
	return all[0], true, nil
}

func checkTask(t *store.Task) error {
	if t.MaxAttempts < 1 || t.Attempt < 0 {
		return store.ErrRange
	}
	g := &t.Grant
	return checkTexts(t.ID, t.Type, t.Workspace, t.Creator, t.Target, t.Implementation, t.ParentID, t.RootID, t.ContextID,
		t.CorrelationID, t.IdempotencyKey, g.Mode, g.SubjectType, g.SubjectID, g.RootSubjectType, g.RootSubjectID, g.GrantID,
		g.RootGrantID, g.ParentGrantID, t.Spec, t.AssignedTo, t.Holder, t.HolderSession, t.HolderGateway,
		t.Launch, t.TokenHash, t.Profile, t.Reason, t.Wait, t.Missed)
}

// rounded is a task with times as they are stored.
func rounded(t store.Task) store.Task {
	for _, at := range []*time.Time{
		&t.CreatedAt, &t.ChangedAt, &t.StartedAt, &t.EndedAt, &t.DisconnectedAt, &t.PausedAt, &t.DueAt, &t.HeartbeatAt,
	} {
		*at = timeOf(millis(*at))
	}
	return t
}

// moving are the arguments of movingColumns but the revision.
func moving(t *store.Task) []any {
	return []any{
		string(t.State), t.Attempt, t.AssignedTo, t.Holder, t.HolderSession, t.HolderGateway, t.Launch, t.TokenHash, t.Profile,
		t.Reason, t.Wait, string(t.ResumeTo), t.Missed,
		millis(t.ChangedAt), millis(t.StartedAt), millis(t.EndedAt), millis(t.DisconnectedAt), millis(t.PausedAt), millis(t.DueAt),
	}
}

// CreateTask implements [store.Tasks].
func (t *Tables) CreateTask(ctx context.Context, task store.Task) (stored store.Task, created bool, err error) {
	if err := checkTask(&task); err != nil {
		return store.Task{}, false, err
	}
	task = rounded(task)
	task.Attempt, task.Rev, task.Told, task.HeartbeatAt = max(task.Attempt, 1), 1, max(min(task.Told, 1), 0), time.Time{}
	if task.Payload == nil {
		task.Payload = []byte{}
	}
	step := uuid.NewString()
	g := &task.Grant
	args := slices.Concat([]any{
		task.ID, task.Type, task.Workspace, task.Creator, task.Target, task.Implementation, string(task.Mode),
		task.ParentID, task.RootID, task.ContextID, task.CorrelationID, task.IdempotencyKey, task.Class, task.Priority, task.MaxAttempts,
		g.Mode, g.SubjectType, g.SubjectID, g.RootSubjectType, g.RootSubjectID, g.GrantID, g.RootGrantID, g.ParentGrantID,
		task.Spec, millis(task.CreatedAt),
	}, moving(&task), []any{task.Rev, task.Told, step, task.Payload})
	// What was there before may end meanwhile; then there is room.
	for range 3 {
		var changed int64
		err = t.db.Write(ctx, "create a task", func(w Writer) (err error) {
			changed, err = w.Exec(insertTask, args...)
			return err
		})
		if err != nil {
			return store.Task{}, false, err
		}
		if changed > 0 {
			return task, true, nil
		}
		var found bool
		if stored, found, err = t.standsFor(ctx, &task); err != nil || found {
			// An insertion whose answer was lost finds itself.
			return stored, found && stored.ID == task.ID, err
		}
	}
	return store.Task{}, false, store.ErrActive
}

// standsFor finds the task that keeps another one from being created.
func (t *Tables) standsFor(ctx context.Context, task *store.Task) (found store.Task, ok bool, err error) {
	err = t.db.Read(ctx, "read a task", func(r Reader) (err error) {
		if found, ok, err = readTask(r, selectTask, task.ID); err != nil || ok {
			return err
		}
		if found, ok, err = readTask(r, selectByKey, task.Creator, task.Workspace, task.IdempotencyKey); err != nil || ok {
			return err
		}
		found, ok, err = readTask(r, selectLaunch, task.Launch)
		return err
	})
	return found, ok, err
}

// Task implements [store.Tasks].
func (t *Tables) Task(ctx context.Context, id string) (store.Task, bool, error) {
	return t.task(ctx, selectTask, id)
}

// TaskPayload implements [store.Tasks].
func (t *Tables) TaskPayload(ctx context.Context, id string) (payload []byte, err error) {
	if err := checkTexts(id); err != nil {
		return nil, err
	}
	err = t.db.Read(ctx, "read the payload of a task", func(r Reader) error {
		_, err := one(r, selectPayload, []any{id}, &payload)
		return err
	})
	return payload, err
}

// TaskByToken implements [store.Tasks].
func (t *Tables) TaskByToken(ctx context.Context, hash string) (store.Task, bool, error) {
	return t.task(ctx, selectByToken, hash)
}

func (t *Tables) task(ctx context.Context, query, arg string) (task store.Task, ok bool, err error) {
	if err := checkTexts(arg); err != nil {
		return store.Task{}, false, err
	}
	err = t.db.Read(ctx, "read a task", func(r Reader) (err error) {
		task, ok, err = readTask(r, query, arg)
		return err
	})
	return task, ok && err == nil, err
}

// UpdateTask implements [store.Tasks].
func (t *Tables) UpdateTask(ctx context.Context, task store.Task) (store.Task, bool, error) {
	if err := checkTask(&task); err != nil {
		return store.Task{}, false, err
	}
	task = rounded(task)
	query := updateTask
	launch := task.Launch != "" && task.EndedAt.IsZero()
	if launch {
		query += onlyLaunch
	}
	args := slices.Concat([]any{task.ID, task.Rev}, moving(&task), []any{task.Told, uuid.NewString()})
	var changed int64
	err := t.db.Write(ctx, "change a task", func(w Writer) (err error) {
		changed, err = w.Exec(query, args...)
		return err
	})
	if err != nil {
		return store.Task{}, false, err
	}
	if changed == 0 {
		if launch {
			other, found, err := t.task(ctx, selectLaunch, task.Launch)
			if err == nil && found && other.ID != task.ID {
				return store.Task{}, false, store.ErrActive
			}
		}
		return store.Task{}, false, nil
	}
	task.Rev++
	return task, true, nil
}

// ToldTasks implements [store.Tasks].
func (t *Tables) ToldTasks(ctx context.Context, revs map[string]int64) error {
	return t.raiseTasks(ctx, "record that creators were told", tellTasks, revs)
}

// raiseTasks raises a number of some tasks.
func (t *Tables) raiseTasks(ctx context.Context, what string, b *Bulk, numbers map[string]int64) error {
	ids := slices.Sorted(maps.Keys(numbers)) // two calls at the same time lock in one order
	if err := checkTexts(ids...); err != nil {
		return err
	}
	for _, batch := range batches(t, ids) {
		values := make([]int64, len(batch))
		for i, id := range batch {
			values[i] = numbers[id]
		}
		if _, err := t.bulk(ctx, what, b, len(batch), batch, values); err != nil {
			return err
		}
	}
	return nil
}

// WaitTask implements [store.Tasks].
func (t *Tables) WaitTask(ctx context.Context, id string, on []string) error {
	if err := checkTexts(append([]string{id}, on...)...); err != nil {
		return err
	}
	return t.db.Transact(ctx, "record for what a task waits", func(w Writer) error {
		if _, err := w.Exec(deleteWaits, id); err != nil {
			return err
		}
		for _, awaited := range on {
			if _, err := w.Exec(insertWait, id, awaited); err != nil {
				return err
			}
		}
		return nil
	})
}

// TaskWaiters implements [store.Tasks].
func (t *Tables) TaskWaiters(ctx context.Context, on, after string, limit int) ([]string, error) {
	if err := checkTexts(on, after); err != nil {
		return nil, err
	}
	var all []string
	err := t.db.Read(ctx, "list who waits for a task", func(r Reader) error {
		all = nil
		return r.Query(selectWaiters, []any{on, after, max(limit, 1)}, func(scan Scan) error {
			var id string
			err := scan(&id)
			all = append(all, id)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// BeatTasks implements [store.Tasks].
func (t *Tables) BeatTasks(ctx context.Context, beats []store.TaskBeat) error {
	latest := map[string]int64{}
	for _, b := range beats {
		latest[b.ID] = max(latest[b.ID], millis(b.At))
	}
	return t.raiseTasks(ctx, "record signs of life of tasks", beatTasks, latest)
}

// ExpireTasks implements [store.Tasks].
func (t *Tables) ExpireTasks(ctx context.Context, before time.Time) (int64, error) {
	total, err := t.expire(ctx, "expire tasks", expireTasks, before)
	if err != nil {
		return total, err
	}
	return total, t.db.Write(ctx, "expire waits of tasks", func(w Writer) error {
		_, err := w.Exec(expireWaits, expireBatch)
		return err
	})
}

// purgeTasks removes the tasks of a deleted workspace.
func (t *Tables) purgeTasks(ctx context.Context, workspace string) (int64, error) {
	for total := int64(0); ; {
		var removed int64
		err := t.db.Write(ctx, "purge a workspace", func(w Writer) (err error) {
			removed, err = w.Exec(purgedTasks, workspace, expireBatch)
			return err
		})
		total += removed
		if err != nil || removed < expireBatch {
			return total, err
		}
	}
}
