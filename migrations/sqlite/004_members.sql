-- +goose Up
-- Which users are in which workspaces: by the tokens that they came with, and
-- by what an operator ruled.
create table members (
	user_id    text not null,
	workspace  text not null,
	until      integer not null, -- of the token that lasts longest, Unix milliseconds; 0: none
	ruling     integer not null check (ruling in (0, 1, 2)), -- 0 none, 1 in, 2 out
	change     integer not null unique, -- number of the row's last change
	changed_at integer not null, -- Unix milliseconds
	primary key (user_id, workspace)
) strict, without rowid;

-- Numbers that are given out one by one, in the order in which they become
-- visible.
create table counters (
	name  text not null primary key,
	value integer not null
) strict, without rowid;

-- +goose Down
drop table counters;
drop table members;
