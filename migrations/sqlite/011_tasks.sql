-- +goose Up
-- Tasks: work that was handed out, and starts of identities. What columns mean
-- stands with store.Task. Times are Unix milliseconds, 0 is none.
create table tasks (
	id              text not null primary key,
	task_type       text not null,
	workspace       text not null,
	creator         text not null,
	target          text not null,
	implementation  text not null,
	mode            text not null check (mode in ('self', 'targeted', 'pool', 'start')),
	parent_id       text not null,
	root_id         text not null,
	context_id      text not null,
	correlation_id  text not null,
	idempotency_key text not null,
	class           integer not null,
	priority        integer not null,
	max_attempts    integer not null check (max_attempts > 0),
	authority_mode    text not null,
	subject_type      text not null,
	subject_id        text not null,
	root_subject_type text not null,
	root_subject_id   text not null,
	grant_id          text not null,
	root_grant_id     text not null,
	parent_grant_id   text not null,
	spec       text not null, -- JSON
	payload    blob not null,
	created_at integer not null,
	state      text not null check (state in ('queued', 'assigned', 'starting', 'running',
		'waiting_input', 'waiting_authority', 'waiting_dependency', 'hibernated',
		'completed', 'failed', 'cancelled', 'rejected')),
	attempt         integer not null check (attempt > 0),
	assigned_to     text not null,
	holder          text not null,
	holder_session  text not null,
	holder_gateway  text not null,
	launch          text not null, -- the identity that is to be started by it
	token_hash      text not null,
	profile         text not null,
	reason          text not null,
	wait            text not null, -- JSON
	resume_to       text not null,
	missed          text not null,
	changed_at      integer not null,
	started_at      integer not null,
	ended_at        integer not null, -- 0: it has not ended
	disconnected_at integer not null,
	paused_at       integer not null,
	due_at          integer not null,
	rev             integer not null, -- raised by each change
	told            integer not null, -- the revision that the creator knows of
	step            text not null, -- names the last change, for it to be repeated
	heartbeat_at    integer not null
) strict;

create unique index tasks_by_key on tasks (creator, workspace, idempotency_key) where idempotency_key <> '';
create unique index tasks_one_launch on tasks (launch) where launch <> '' and ended_at = 0;
create unique index tasks_by_token on tasks (token_hash) where token_hash <> '';
create index tasks_by_workspace on tasks (workspace, created_at, id);
create index tasks_by_creator on tasks (creator, created_at, id);
create index tasks_by_assignee on tasks (assigned_to, created_at, id);
create index tasks_by_subject on tasks (subject_type, subject_id, created_at, id) where subject_id <> '';
create index tasks_by_parent on tasks (parent_id) where parent_id <> '';
create index tasks_by_root on tasks (root_id);
create index tasks_queued on tasks (workspace, implementation, priority, created_at) where state = 'queued';
create index tasks_of_target on tasks (target, priority, created_at) where ended_at = 0;
create index tasks_held on tasks (holder) where ended_at = 0;
create index tasks_held_at on tasks (holder_gateway) where ended_at = 0;
create index tasks_due on tasks (due_at) where due_at > 0;
create index tasks_untold on tasks (changed_at) where told < rev;
create index tasks_ended on tasks (ended_at) where ended_at > 0;

-- For which tasks one waits.
create table task_waits (
	task    text not null,
	awaited text not null,
	primary key (task, awaited)
) strict, without rowid;

create index task_waits_by_awaited on task_waits (awaited, task);

-- +goose Down
drop table task_waits;
drop table tasks;
