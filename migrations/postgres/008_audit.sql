-- +goose Up
-- What happened: who connected, was refused, and what operators did.
create table audit (
	origin  text collate "C" not null, -- the gateway process that recorded it
	seq     bigint not null check (seq >= 0), -- its number there
	at      bigint not null, -- Unix milliseconds, of the first time
	gateway text collate "C" not null,
	kind    text collate "C" not null,
	actor   text collate "C" not null,
	action  text collate "C" not null,
	target  text collate "C" not null,
	outcome text collate "C" not null,
	reason  text collate "C" not null,
	detail  text collate "C" not null,
	times   bigint not null check (times > 0), -- how often
	primary key (origin, seq)
);

create index audit_by_time on audit (at, origin, seq);
create index audit_by_actor on audit (actor, at);

-- +goose Down
drop table audit;
