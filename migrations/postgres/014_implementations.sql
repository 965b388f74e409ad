-- +goose Up
-- Which implementations can be started, and how.
create table implementations (
	name        text collate "C" not null,
	workspace   text collate "C" not null, -- '': all that have no entry of their own
	profile     text collate "C" not null,
	params      text collate "C" not null, -- a JSON object of texts
	overridable text collate "C" not null, -- a JSON array of texts
	created_by  text collate "C" not null,
	created_at  bigint not null, -- Unix milliseconds
	primary key (name, workspace)
);

-- +goose Down
drop table implementations;
