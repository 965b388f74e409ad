-- +goose Up
-- Who may act for whom.
create table grants (
	id              text not null primary key,
	root_id         text not null,
	parent_id       text not null, -- '': it is the first of its chain
	depth           integer not null check (depth >= 0),
	subject_type    text not null,
	subject_id      text not null,
	delegate_type   text not null,
	delegate_id     text not null, -- '': not known yet
	issued_by       text not null,
	audience_type   text not null,
	audience_id     text not null,
	workspaces      text not null, -- those that it names, each between line feeds
	terms           text not null, -- what it allows, a JSON object
	created_at      integer not null, -- Unix milliseconds, as all times here
	expires_at      integer not null,
	renewable_until integer not null,
	renewed_at      integer not null, -- 0: never
	revoked_at      integer not null, -- 0: it is not
	revoked_by      text not null,
	revoke_reason   text not null,
	change          integer not null unique -- number of the row's last change
) strict, without rowid;

create index grants_by_parent on grants (parent_id);
create index grants_by_subject on grants (subject_type, subject_id, created_at);
create index grants_by_delegate on grants (delegate_id, created_at);
create index grants_by_audience on grants (audience_type, audience_id);

-- +goose Down
drop table grants;
