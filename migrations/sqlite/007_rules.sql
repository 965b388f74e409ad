-- +goose Up
-- What operators ruled for named principals, on top of who may send where.
-- Patterns are bounded in length by those who write them, so that the unique
-- index can hold them.
create table rules (
	id         integer not null primary key, -- the number of the change that added it
	effect     text not null check (effect in ('allow', 'deny')),
	principal  text not null,
	action     text not null,
	address    text not null,
	grammar    text not null,
	created_by text not null,
	note       text not null,
	created_at integer not null, -- Unix milliseconds
	unique (effect, principal, action, address, grammar)
) strict;

-- +goose Down
drop table rules;
