-- +goose Up
create table positions (
	identity text not null,
	address  text not null,
	position integer not null check (position >= 0),
	epoch    integer not null check (epoch >= 0),
	moved_at integer not null, -- Unix milliseconds
	primary key (identity, address)
) strict, without rowid;

create index positions_by_address on positions (address, identity);

-- +goose Down
drop table positions;
