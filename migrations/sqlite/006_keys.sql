-- +goose Up
-- API keys, without their secrets, and which credentials were taken back before
-- they expire. Times are Unix milliseconds.
create table api_keys (
	id         text not null primary key,
	name       text not null,
	salt       text not null, -- hex, as is the hash
	hash       text not null,
	claims     text not null, -- JSON
	created_by text not null,
	revoked_by text not null,
	created_at integer not null,
	expires_at integer not null, -- 0: never
	revoked_at integer not null, -- 0: it is not
	used_at    integer not null, -- 0: never
	change     integer not null unique -- number of the row's last change
) strict, without rowid;

create table revocations (
	what          text not null, -- token, subject, user, identity
	id            text not null,
	issued_before integer not null, -- spares what was issued after it
	until         integer not null, -- when it may be forgotten; 2^63-1: never
	reason        text not null,
	revoked_by    text not null,
	revoked_at    integer not null,
	change        integer not null unique, -- number of the row's last change
	primary key (what, id)
) strict, without rowid;

-- +goose Down
drop table revocations;
drop table api_keys;
