-- +goose Up
-- How the last session of an identity on an address ended.
create table marks (
	identity        text not null,
	address         text not null,
	workspace       text not null, -- whose quota counts it
	epoch           integer not null check (epoch >= 0), -- of the session that began last
	clean           integer check (clean >= 0), -- up to where it ended clean; null: it did not, or runs
	ended_at        integer, -- Unix milliseconds
	before_clean    integer check (before_clean >= 0), -- the same of the session before it
	before_ended_at integer,
	seen_at         integer not null, -- Unix milliseconds
	primary key (identity, address)
) strict, without rowid;

create index marks_by_workspace on marks (workspace);

-- +goose Down
drop table marks;
