-- +goose Up
-- Which workspaces there are, and which there were: a name that is used again
-- must not bring back what was sent to it before.
create table workspaces (
	name       text collate "C" not null primary key,
	era        bigint not null check (era >= 0), -- how often it was created anew
	created_at bigint not null, -- Unix milliseconds
	created_by text collate "C" not null,
	deleted_at bigint, -- Unix milliseconds; null: it exists
	purged     smallint not null check (purged in (0, 1)), -- 1: what was kept of a deleted one is removed
	change     bigint not null unique -- number of the row's last change
);

create index members_by_workspace on members (workspace, user_id);

-- +goose Down
drop index members_by_workspace;
drop table workspaces;
