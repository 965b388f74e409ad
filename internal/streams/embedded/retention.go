package embedded

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
)

// trimEntries and trimBytes bound what one job deletes, so that appends never
// wait long for it.
const (
	trimEntries = 64
	trimBytes   = 8 << 20
)

func (d *Driver) trimOnTime(ctx context.Context) {
	timer := d.o.Clock.NewTimer(d.o.TrimInterval)
	defer timer.Stop()
	for {
		select {
		case <-timer.C():
		case <-ctx.Done():
			return
		}
		// An error of the file shows in every append; a full disk is the very
		// time to try again.
		_ = d.Trim(ctx)
		timer.Reset(d.o.TrimInterval)
	}
}

// Trim deletes what retention does not keep: from the oldest entry on, those
// older than MaxAge and those above MaxBytes. The driver does so by itself
// every TrimInterval. Consumers that are behind go on at the first entry that
// is left; offsets are not given again.
func (d *Driver) Trim(ctx context.Context) error {
	for _, p := range d.partitions {
		for more := true; more; {
			var err error
			if more, err = p.trim(ctx, d.excess); err != nil {
				return fmt.Errorf("embedded: trim partition %d: %w", p.n, err)
			}
		}
	}
	return nil
}

// excess tells what of a partition retention no longer keeps.
type excess struct {
	storedBefore int64 // entries stored before are too old; 0: none is
	bytes        int64 // so many have to go, at least
}

func (d *Driver) excess(bytes int64) excess {
	e := excess{}
	if d.o.MaxAge > 0 {
		e.storedBefore = d.o.Clock.Now().Add(-d.o.MaxAge).UnixMilli()
	}
	if d.o.MaxBytes > 0 {
		e.bytes = max(0, bytes-d.o.MaxBytes)
	}
	return e
}

// trim deletes a bounded number of entries and reports whether there may be
// more to delete.
func (p *partition) trim(ctx context.Context, excessOf func(bytes int64) excess) (more bool, err error) {
	need, err := p.needsTrim(ctx, excessOf)
	if err != nil || !need {
		return false, err
	}
	var first uint64
	err = p.file.Write(ctx, func(tx *sqlitefile.Tx) error {
		var next, bytes int64
		if err := tx.Get(selectPartition, []any{p.n}, &next, &bytes); err != nil {
			return err
		}
		end, freed, err := p.trimEnd(tx, next, excessOf(bytes))
		if err != nil {
			return err
		}
		first = uint64(end)
		if freed < 0 {
			return nil
		}
		more = true
		if _, err := tx.Exec(p.sql.trim, end); err != nil {
			return err
		}
		if _, err := tx.Exec(updatePartition, p.n, next, bytes-freed); err != nil {
			return err
		}
		return p.expireNames(tx, end)
	})
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	p.recent.evictBelow(first)
	p.mu.Unlock()
	return more, nil
}

// needsTrim looks without the writer whether there is anything to do.
func (p *partition) needsTrim(ctx context.Context, excessOf func(bytes int64) excess) (bool, error) {
	var next, bytes, oldest int64
	db := p.file.Read()
	if err := db.QueryRowContext(ctx, selectPartition, p.n).Scan(&next, &bytes); err != nil {
		return false, err
	}
	err := db.QueryRowContext(ctx, p.sql.oldest).Scan(&oldest)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	e := excessOf(bytes)
	return oldest < e.storedBefore || e.bytes > 0, nil
}

// trimEnd returns the offset below which entries are to be deleted now and how
// many bytes that frees, -1 if there are none.
func (p *partition) trimEnd(tx *sqlitefile.Tx, next int64, e excess) (end, freed int64, err error) {
	rows, err := tx.Query(p.sql.trimmable, trimEntries)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = rows.Close() }()
	freed = -1
	for total := int64(0); total < trimBytes && rows.Next(); {
		var offset, storedAt, size int64
		if err := rows.Scan(&offset, &storedAt, &size); err != nil {
			return 0, 0, err
		}
		newest := offset == next-1
		if storedAt >= e.storedBefore && (total >= e.bytes || newest) {
			break
		}
		total += size
		end, freed = offset+1, total
	}
	return end, freed, rows.Err()
}

// expireNames forgets the producers whose last entry is gone, unless they are
// open: with the entries, the need to recognise their repeats has gone.
func (p *partition) expireNames(tx *sqlitefile.Tx, first int64) error {
	rows, err := tx.Query(selectIdle, p.n, first)
	if err != nil {
		return err
	}
	var idle []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			_ = rows.Close()
			return err
		}
		idle = append(idle, name)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, name := range idle {
		if p.isOpen(name) {
			continue
		}
		if _, err := tx.Exec(deleteProducer, p.n, name); err != nil {
			return err
		}
	}
	return nil
}

func (p *partition) isOpen(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for f := range p.producers {
		if f.name == name {
			return true
		}
	}
	return false
}
