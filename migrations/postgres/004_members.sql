-- +goose Up
-- Which users are in which workspaces: by the tokens that they came with, and
-- by what an operator ruled.
create table members (
	user_id    text collate "C" not null,
	workspace  text collate "C" not null,
	until      bigint not null, -- of the token that lasts longest, Unix milliseconds; 0: none
	ruling     smallint not null check (ruling in (0, 1, 2)), -- 0 none, 1 in, 2 out
	change     bigint not null unique, -- number of the row's last change
	changed_at bigint not null, -- Unix milliseconds
	primary key (user_id, workspace)
);

-- Numbers that are given out one by one, in the order in which they become
-- visible.
create table counters (
	name  text collate "C" not null primary key,
	value bigint not null
);

-- +goose Down
drop table counters;
drop table members;
