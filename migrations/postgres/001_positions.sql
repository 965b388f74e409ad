-- +goose Up
-- Names compare by their bytes, as they do in SQLite. Room is left in each
-- page, because rows are moved again and again and never grow.
create table positions (
	identity text collate "C" not null,
	address  text collate "C" not null,
	position bigint not null check (position >= 0),
	epoch    bigint not null check (epoch >= 0),
	moved_at bigint not null, -- Unix milliseconds
	primary key (identity, address)
) with (fillfactor = 70);

create index positions_by_address on positions (address, identity);

-- +goose Down
drop table positions;
