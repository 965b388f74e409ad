-- +goose Up
-- Tasks: work that was handed out, and starts of identities. What columns mean
-- stands with store.Task. Times are Unix milliseconds, 0 is none.
create table tasks (
	id              text collate "C" not null primary key,
	task_type       text collate "C" not null,
	workspace       text collate "C" not null,
	creator         text collate "C" not null,
	target          text collate "C" not null,
	implementation  text collate "C" not null,
	mode            text collate "C" not null check (mode in ('self', 'targeted', 'pool', 'start')),
	parent_id       text collate "C" not null,
	root_id         text collate "C" not null,
	context_id      text collate "C" not null,
	correlation_id  text collate "C" not null,
	idempotency_key text collate "C" not null,
	class           bigint not null,
	priority        bigint not null,
	max_attempts    bigint not null check (max_attempts > 0),
	authority_mode    text collate "C" not null,
	subject_type      text collate "C" not null,
	subject_id        text collate "C" not null,
	root_subject_type text collate "C" not null,
	root_subject_id   text collate "C" not null,
	grant_id          text collate "C" not null,
	root_grant_id     text collate "C" not null,
	parent_grant_id   text collate "C" not null,
	spec       text collate "C" not null, -- JSON
	payload    bytea not null,
	created_at bigint not null,
	state      text collate "C" not null check (state in ('queued', 'assigned', 'starting', 'running',
		'waiting_input', 'waiting_authority', 'waiting_dependency', 'hibernated',
		'completed', 'failed', 'cancelled', 'rejected')),
	attempt         bigint not null check (attempt > 0),
	assigned_to     text collate "C" not null,
	holder          text collate "C" not null,
	holder_session  text collate "C" not null,
	holder_gateway  text collate "C" not null,
	launch          text collate "C" not null, -- the identity that is to be started by it
	token_hash      text collate "C" not null,
	profile         text collate "C" not null,
	reason          text collate "C" not null,
	wait            text collate "C" not null, -- JSON
	resume_to       text collate "C" not null,
	missed          text collate "C" not null,
	changed_at      bigint not null,
	started_at      bigint not null,
	ended_at        bigint not null, -- 0: it has not ended
	disconnected_at bigint not null,
	paused_at       bigint not null,
	due_at          bigint not null,
	rev             bigint not null, -- raised by each change
	told            bigint not null, -- the revision that the creator knows of
	step            text collate "C" not null, -- names the last change, for it to be repeated
	heartbeat_at    bigint not null
);

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
	task    text collate "C" not null,
	awaited text collate "C" not null,
	primary key (task, awaited)
);

create index task_waits_by_awaited on task_waits (awaited, task);

-- +goose Down
drop table task_waits;
drop table tasks;
