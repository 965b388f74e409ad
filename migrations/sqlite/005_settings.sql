-- +goose Up
-- What all gateways of a deployment have to agree on.
create table settings (
	name       text not null primary key,
	value      text not null,
	changed_at integer not null -- Unix milliseconds
) strict, without rowid;

-- +goose Down
drop table settings;
