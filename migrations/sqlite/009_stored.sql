-- +goose Up
-- How many bytes each workspace has in each partition of the log, by the time
-- at which they were sent; as it was up to a position.
create table stored (
	part         integer not null,
	slot         integer not null, -- its number: time divided by its width
	workspace    text not null,
	bytes        integer not null,
	first_offset integer not null, -- of the slot in the log
	last_offset  integer not null,
	primary key (part, slot, workspace)
) strict, without rowid;

create table stored_upto (
	part     integer not null primary key,
	width    integer not null, -- of a slot, in milliseconds
	position integer not null,
	saved_at integer not null -- Unix milliseconds
) strict, without rowid;

-- +goose Down
drop table stored_upto;
drop table stored;
