-- +goose Up
-- API keys, without their secrets, and which credentials were taken back before
-- they expire. Times are Unix milliseconds.
create table api_keys (
	id         text collate "C" not null primary key,
	name       text collate "C" not null,
	salt       text collate "C" not null, -- hex, as is the hash
	hash       text collate "C" not null,
	claims     text collate "C" not null, -- JSON
	created_by text collate "C" not null,
	revoked_by text collate "C" not null,
	created_at bigint not null,
	expires_at bigint not null, -- 0: never
	revoked_at bigint not null, -- 0: it is not
	used_at    bigint not null, -- 0: never
	change     bigint not null unique -- number of the row's last change
);

create table revocations (
	what          text collate "C" not null, -- token, subject, user, identity
	id            text collate "C" not null,
	issued_before bigint not null, -- spares what was issued after it
	until         bigint not null, -- when it may be forgotten; 2^63-1: never
	reason        text collate "C" not null,
	revoked_by    text collate "C" not null,
	revoked_at    bigint not null,
	change        bigint not null unique, -- number of the row's last change
	primary key (what, id)
);

-- +goose Down
drop table revocations;
drop table api_keys;
