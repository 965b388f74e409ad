-- +goose Up
-- Keys and values of agents, tasks and services, and their checkpoints. What a
-- scope is, and which parts it has, is the program's; a part that it has not is
-- empty.
create table kv (
	workspace      text collate "C" not null,
	scope          smallint not null,
	implementation text collate "C" not null,
	owner          text collate "C" not null,
	key            text collate "C" not null,
	account        text collate "C" not null, -- whom it is counted for
	size           bigint not null check (size >= 0), -- bytes of key and value
	form           smallint not null, -- what the value is
	changed_at     bigint not null, -- Unix milliseconds
	expires_at     bigint, -- Unix milliseconds; null: never
	value          bytea not null,
	primary key (workspace, scope, implementation, owner, key)
);

create index kv_by_expiry on kv (expires_at) where expires_at is not null;
create index kv_by_owner on kv (owner) where owner <> '';

-- How much each account has.
create table kv_accounts (
	account text collate "C" not null primary key,
	keys    bigint not null,
	bytes   bigint not null
);

-- +goose Down
drop table kv_accounts;
drop table kv;
