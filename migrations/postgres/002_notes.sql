-- +goose Up
-- Notes of absence: from which position of its log an address that nobody held
-- may have mail.
create table notes (
	address    text collate "C" not null primary key,
	position   bigint not null check (position >= 0),
	workspace  text collate "C" not null, -- whose quota counts it
	written_at bigint not null -- Unix milliseconds
) with (fillfactor = 70);

create index notes_by_workspace on notes (workspace);

-- +goose Down
drop table notes;
