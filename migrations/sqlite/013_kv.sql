-- +goose Up
-- Keys and values of agents, tasks and services, and their checkpoints. What a
-- scope is, and which parts it has, is the program's; a part that it has not is
-- empty. The value is the last column, so that the others are read without it.
create table kv (
	workspace      text not null,
	scope          integer not null,
	implementation text not null,
	owner          text not null,
	key            text not null,
	account        text not null, -- whom it is counted for
	size           integer not null check (size >= 0), -- bytes of key and value
	form           integer not null, -- what the value is
	changed_at     integer not null, -- Unix milliseconds
	expires_at     integer, -- Unix milliseconds; null: never
	value          blob not null,
	primary key (workspace, scope, implementation, owner, key)
) strict;

create index kv_by_expiry on kv (expires_at) where expires_at is not null;
create index kv_by_owner on kv (owner) where owner <> '';

-- How much each account has.
create table kv_accounts (
	account text not null primary key,
	keys    integer not null,
	bytes   integer not null
) strict, without rowid;

-- +goose Down
drop table kv_accounts;
drop table kv;
