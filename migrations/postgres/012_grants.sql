-- +goose Up
-- Who may act for whom.
create table grants (
	id              text collate "C" not null primary key,
	root_id         text collate "C" not null,
	parent_id       text collate "C" not null, -- '': it is the first of its chain
	depth           bigint not null check (depth >= 0),
	subject_type    text collate "C" not null,
	subject_id      text collate "C" not null,
	delegate_type   text collate "C" not null,
	delegate_id     text collate "C" not null, -- '': not known yet
	issued_by       text collate "C" not null,
	audience_type   text collate "C" not null,
	audience_id     text collate "C" not null,
	workspaces      text collate "C" not null, -- those that it names, each between line feeds
	terms           text collate "C" not null, -- what it allows, a JSON object
	created_at      bigint not null, -- Unix milliseconds, as all times here
	expires_at      bigint not null,
	renewable_until bigint not null,
	renewed_at      bigint not null, -- 0: never
	revoked_at      bigint not null, -- 0: it is not
	revoked_by      text collate "C" not null,
	revoke_reason   text collate "C" not null,
	change          bigint not null unique -- number of the row's last change
);

create index grants_by_parent on grants (parent_id);
create index grants_by_subject on grants (subject_type, subject_id, created_at);
create index grants_by_delegate on grants (delegate_id, created_at);
create index grants_by_audience on grants (audience_type, audience_id);

-- +goose Down
drop table grants;
