-- +goose Up
-- How many bytes each workspace has in each partition of the log, by the time
-- at which they were sent; as it was up to a position.
create table stored (
	part         bigint not null,
	slot         bigint not null, -- its number: time divided by its width
	workspace    text collate "C" not null,
	bytes        bigint not null,
	first_offset bigint not null, -- of the slot in the log
	last_offset  bigint not null,
	primary key (part, slot, workspace)
);

create table stored_upto (
	part     bigint not null primary key,
	width    bigint not null, -- of a slot, in milliseconds
	position bigint not null,
	saved_at bigint not null -- Unix milliseconds
);

-- +goose Down
drop table stored_upto;
drop table stored;
