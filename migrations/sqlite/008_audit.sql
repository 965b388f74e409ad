-- +goose Up
-- What happened: who connected, was refused, and what operators did.
create table audit (
	origin  text not null, -- the gateway process that recorded it
	seq     integer not null check (seq >= 0), -- its number there
	at      integer not null, -- Unix milliseconds, of the first time
	gateway text not null,
	kind    text not null,
	actor   text not null,
	action  text not null,
	target  text not null,
	outcome text not null,
	reason  text not null,
	detail  text not null,
	times   integer not null check (times > 0), -- how often
	primary key (origin, seq)
) strict, without rowid;

create index audit_by_time on audit (at, origin, seq);
create index audit_by_actor on audit (actor, at);

-- +goose Down
drop table audit;
