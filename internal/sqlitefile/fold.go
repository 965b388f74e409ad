package sqlitefile

import "os"

// foldStep bounds the write-ahead log, in bytes. SQLite folds it in at a
// quarter of that by itself, but begins it anew only at a moment in which
// nobody reads from it; overlapping readers can put that off for ever.
const foldStep = 64 << 20

// fold makes readers wait for a moment, if it has to be, so that the
// write-ahead log can begin anew. A reader that does not come to an end costs
// 100 ms once per foldStep.
func (f *File) fold(tx *Tx) {
	info, err := os.Stat(f.path + "-wal")
	if err != nil || info.Size() < f.foldAt {
		return
	}
	f.foldAt = info.Size() + f.foldStep
	if tx.run("pragma busy_timeout = 100") != nil {
		return
	}
	var busy, logged, folded int64
	err = tx.Get("pragma wal_checkpoint(truncate)", nil, &busy, &logged, &folded)
	if err == nil && busy == 0 {
		f.foldAt = f.foldStep
	}
	_ = tx.run("pragma busy_timeout = " + busyTimeout)
}
