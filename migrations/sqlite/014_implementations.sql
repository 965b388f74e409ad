-- +goose Up
-- Which implementations can be started, and how.
create table implementations (
	name        text not null,
	workspace   text not null, -- '': all that have no entry of their own
	profile     text not null,
	params      text not null, -- a JSON object of texts
	overridable text not null, -- a JSON array of texts
	created_by  text not null,
	created_at  integer not null, -- Unix milliseconds
	primary key (name, workspace)
) strict, without rowid;

-- +goose Down
drop table implementations;
