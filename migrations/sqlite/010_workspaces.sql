-- +goose Up
-- Which workspaces there are, and which there were: a name that is used again
-- must not bring back what was sent to it before.
create table workspaces (
	name       text not null primary key,
	era        integer not null check (era >= 0), -- how often it was created anew
	created_at integer not null, -- Unix milliseconds
	created_by text not null,
	deleted_at integer, -- Unix milliseconds; null: it exists
	purged     integer not null check (purged in (0, 1)), -- 1: what was kept of a deleted one is removed
	change     integer not null unique -- number of the row's last change
) strict, without rowid;

create index members_by_workspace on members (workspace, user_id);

-- +goose Down
drop index members_by_workspace;
drop table workspaces;
