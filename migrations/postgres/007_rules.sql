-- +goose Up
-- What operators ruled for named principals, on top of who may send where.
-- Patterns are bounded in length by those who write them, so that the unique
-- index can hold them.
create table rules (
	id         bigint not null primary key, -- the number of the change that added it
	effect     text collate "C" not null check (effect in ('allow', 'deny')),
	principal  text collate "C" not null,
	action     text collate "C" not null,
	address    text collate "C" not null,
	grammar    text collate "C" not null,
	created_by text collate "C" not null,
	note       text collate "C" not null,
	created_at bigint not null, -- Unix milliseconds
	unique (effect, principal, action, address, grammar)
);

-- +goose Down
drop table rules;
