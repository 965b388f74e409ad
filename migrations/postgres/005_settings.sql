-- +goose Up
-- What all gateways of a deployment have to agree on.
create table settings (
	name       text collate "C" not null primary key,
	value      text collate "C" not null,
	changed_at bigint not null -- Unix milliseconds
);

-- +goose Down
drop table settings;
