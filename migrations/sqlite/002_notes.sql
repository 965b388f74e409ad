-- +goose Up
-- Notes of absence: from which position of its log an address that nobody held
-- may have mail.
create table notes (
	address    text not null primary key,
	position   integer not null check (position >= 0),
	workspace  text not null, -- whose quota counts it
	written_at integer not null -- Unix milliseconds
) strict, without rowid;

create index notes_by_workspace on notes (workspace);

-- +goose Down
drop table notes;
