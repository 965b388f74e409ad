-- +goose Up
-- How the last session of an identity on an address ended.
create table marks (
	identity        text collate "C" not null,
	address         text collate "C" not null,
	workspace       text collate "C" not null, -- whose quota counts it
	epoch           bigint not null check (epoch >= 0), -- of the session that began last
	clean           bigint check (clean >= 0), -- up to where it ended clean; null: it did not, or runs
	ended_at        bigint, -- Unix milliseconds
	before_clean    bigint check (before_clean >= 0), -- the same of the session before it
	before_ended_at bigint,
	seen_at         bigint not null, -- Unix milliseconds
	primary key (identity, address)
) with (fillfactor = 70);

create index marks_by_workspace on marks (workspace);

-- +goose Down
drop table marks;
