package embedded

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
)

// format is the version of the tables below.
const format = 1

// FormatError says that the file's log was not written by a driver like this
// one, or not with this number of partitions, which is fixed when a log is
// born (addresses would move to other partitions than their messages).
type FormatError struct {
	// What is "format" or "number of partitions".
	What string
	// Have is the file's value, Want the one asked for.
	Have, Want int
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("embedded: the log has %s %d, not %d", e.What, e.Have, e.Want)
}

// create makes the tables of a new log and checks those of an existing one.
// Each partition has a table of its own, so that appends are always at the
// right edge of a tree.
func create(tx *sqlitefile.Tx, partitions int) error {
	if _, err := tx.Exec(`create table if not exists log_meta (
		format integer not null, partitions integer not null) strict`); err != nil {
		return err
	}
	var haveFormat, havePartitions int
	err := tx.Get("select format, partitions from log_meta", nil, &haveFormat, &havePartitions)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return createNew(tx, partitions)
	case err != nil:
		return err
	case haveFormat != format:
		return &FormatError{What: "format", Have: haveFormat, Want: format}
	case havePartitions != partitions:
		return &FormatError{What: "number of partitions", Have: havePartitions, Want: partitions}
	}
	return nil
}

func createNew(tx *sqlitefile.Tx, partitions int) error {
	// next_offset outlives the entries: an offset is never given twice.
	statements := []string{
		`create table log_partition (
			partition integer primary key, next_offset integer not null, bytes integer not null) strict`,
		`create table log_producer (
			partition integer not null, name text not null,
			last_id integer not null, last_offset integer not null,
			primary key (partition, name)) strict, without rowid`,
	}
	for _, s := range statements {
		if _, err := tx.Exec(s); err != nil {
			return err
		}
	}
	if err := createPartitions(tx, 0, partitions); err != nil {
		return err
	}
	_, err := tx.Exec("insert into log_meta (format, partitions) values ($1, $2)", format, partitions)
	return err
}

// createPartitions makes those from and below to that are not there.
func createPartitions(tx *sqlitefile.Tx, from, to int) error {
	for n := from; n < to; n++ {
		if _, err := tx.Exec(fmt.Sprintf(`create table if not exists log_entry_%d (
			entry_offset integer primary key, stored_at integer not null, data blob not null) strict`, n)); err != nil {
			return err
		}
		if _, err := tx.Exec(`insert into log_partition (partition, next_offset, bytes) values ($1, 0, 0)
			on conflict do nothing`, n); err != nil {
			return err
		}
	}
	return nil
}

// The texts that are the same for all partitions.
const (
	selectPartition = "select next_offset, bytes from log_partition where partition = $1"
	updatePartition = "update log_partition set next_offset = $2, bytes = $3 where partition = $1"
	selectLastID    = "select last_id from log_producer where partition = $1 and name = $2"
	upsertProducer  = `insert into log_producer (partition, name, last_id, last_offset) values ($1, $2, $3, $4)
		on conflict (partition, name) do update set last_id = excluded.last_id, last_offset = excluded.last_offset`
	selectIdle     = "select name from log_producer where partition = $1 and last_offset < $2"
	deleteProducer = "delete from log_producer where partition = $1 and name = $2"
)

// texts are those of one partition's entries.
type texts struct {
	insert, read, at, first, oldest, trimmable, trim string
}

func textsOf(partition int) texts {
	table := fmt.Sprintf("log_entry_%d", partition)
	return texts{
		insert: "insert into " + table + " (entry_offset, stored_at, data) values ($1, $2, $3)",
		read: "select entry_offset, data from " + table +
			" where entry_offset >= $1 and entry_offset < $2 order by entry_offset limit $3",
		at:        "select stored_at from " + table + " where entry_offset >= $1 order by entry_offset limit 1",
		first:     "select entry_offset, data from " + table + " order by entry_offset limit 1",
		oldest:    "select stored_at from " + table + " order by entry_offset limit 1",
		trimmable: "select entry_offset, stored_at, length(data) from " + table + " order by entry_offset limit $1",
		trim:      "delete from " + table + " where entry_offset < $1",
	}
}
