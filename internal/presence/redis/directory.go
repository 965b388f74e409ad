package redis

import (
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
)

// directory is the copy of who holds what (delivery rule C7). It is fed by the
// changes that scripts publish, each with a version, and by scans. It is
// correct up to a version if it has all changes up to it; the heartbeat says
// which version there was when it was sent, which turns versions into time.
type directory struct {
	now func() time.Time

	mu          sync.RWMutex
	incarnation string
	names       map[string]entry // wildcards by their prefix, in wild
	wild        map[string]entry
	alive       map[string]presence.Instance
	heard       map[string]uint64 // instance -> version of its last change
	asOf        time.Time         // all changes made before are known
	beatAt      time.Time         // of the heartbeat that said who lives

	synced  bool   // applied counts
	applied uint64 // all changes up to this version are known

	// While a scan runs. Changes then come in any relation to its pieces, so
	// names that are freed leave a trace in it.
	scanning    bool
	generation  uint32
	tombs       map[string]uint64
	first, last uint64 // versions of the changes that came; 0: none
	broken      bool

	// Heartbeats whose version has not been reached. If they are too many the
	// last but one goes, which makes the answer older, never wrong; the first
	// shows for how long nothing has come.
	waiting []beatMark
}

type entry struct {
	session, boot string
	epoch         uint64
	version       uint64
	generation    uint32
}

type beatMark struct {
	version uint64
	at      time.Time
}

const maxBeatMarks = 16

func newDirectory(now func() time.Time) *directory {
	d := &directory{now: now, alive: map[string]presence.Instance{}}
	d.reset("")
	return d
}

// reset forgets everything: a new incarnation begins. The mutex is held, or
// not needed yet.
func (d *directory) reset(incarnation string) {
	d.incarnation = incarnation
	d.names, d.wild = map[string]entry{}, map[string]entry{}
	d.heard = map[string]uint64{}
	d.asOf = time.Time{}
	d.synced, d.applied = false, 0
	d.scanning, d.tombs = false, nil
	d.waiting = nil
}

// enter resets the directory if it is of another incarnation.
func (d *directory) enter(incarnation string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.incarnation != incarnation {
		d.reset(incarnation)
	}
}

// beat takes what a heartbeat said that was sent at: who lives, and which
// version there is. It returns who has died since the last one. During the
// grace after a change of incarnation nobody has: others may not have been
// there yet.
func (d *directory) beat(incarnation string, version uint64, peers []presence.Instance, at time.Time, grace bool) (died []presence.Instance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.incarnation != incarnation {
		d.reset(incarnation)
	}
	before := d.alive
	d.alive = make(map[string]presence.Instance, len(peers))
	for _, peer := range peers {
		d.alive[peer.ID] = peer
	}
	for boot, v := range d.heard {
		if v > version {
			d.alive[boot] = before[boot] // was heard of after that heartbeat
			continue
		}
		delete(d.heard, boot)
	}
	for boot, peer := range before {
		if _, ok := d.alive[boot]; ok {
			continue
		}
		if grace {
			d.alive[boot] = peer
		} else {
			died = append(died, peer)
		}
	}
	d.beatAt = at
	if len(d.waiting) == maxBeatMarks {
		d.waiting = d.waiting[:maxBeatMarks-1]
	}
	d.waiting = append(d.waiting, beatMark{version, at})
	d.advance()
	return died
}

// advance turns the version that has been reached into a time.
func (d *directory) advance() {
	if !d.synced {
		return
	}
	for len(d.waiting) > 0 && d.waiting[0].version <= d.applied {
		d.asOf = d.waiting[0].at
		d.waiting = d.waiting[1:]
	}
}

// unsync says that changes may be missed from now on, until a scan has ended
// that began later.
func (d *directory) unsync() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.synced = false
	d.broken = true
}

// behind reports whether the directory waits for a change that a heartbeat
// saw that was sent before a time.
func (d *directory) behind(before time.Time) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.synced && len(d.waiting) > 0 && d.waiting[0].at.Before(before)
}

// apply takes a published change. It returns false if one before it is
// missing: a scan is needed.
func (d *directory) apply(incarnation string, version uint64, changes []change) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if incarnation != d.incarnation {
		return true // the next heartbeat tells which one is right
	}
	if d.scanning {
		if d.first == 0 {
			d.first = version
		} else if version != d.last+1 {
			d.broken = true
		}
		d.last = version
	} else if d.synced && version <= d.applied {
		return true // the scan had it
	}
	for _, c := range lastOf(changes) {
		if c.session == "" {
			d.remove(c.name, version)
			continue
		}
		d.put(c, version, false)
		if _, ok := d.alive[c.boot]; !ok {
			d.alive[c.boot] = presence.Instance{ID: c.boot}
		}
		d.heard[c.boot] = version
	}
	if d.scanning || !d.synced {
		return true
	}
	if version != d.applied+1 {
		d.synced = false
		return false
	}
	d.applied = version
	d.advance()
	return true
}

// lastOf leaves the last change of each name: all changes of a message have one
// version, and could not be told apart in the copy.
func lastOf(changes []change) []change {
	if len(changes) < 2 {
		return changes
	}
	last := make(map[string]int, len(changes))
	for i, c := range changes {
		last[c.name] = i
	}
	kept := make([]change, 0, len(last))
	for i, c := range changes {
		if last[c.name] == i {
			kept = append(kept, c)
		}
	}
	return kept
}

func (d *directory) place(name string) (map[string]entry, string) {
	if prefix, ok := presence.Wildcard(name); ok {
		return d.wild, prefix
	}
	return d.names, name
}

// put takes a name's state at a version. scanned says that the running scan has
// seen the name; a change alone does not, because the end of a name may be told
// before the scan and come after it.
func (d *directory) put(c change, version uint64, scanned bool) {
	set, key := d.place(c.name)
	old, ok := set[key]
	if scanned {
		old.generation = d.generation
	}
	switch {
	case d.tombs[c.name] > version:
		return
	case ok && old.version > version:
		set[key] = old
		return
	}
	boot := c.boot
	if known, ok := d.alive[boot]; ok {
		boot = known.ID // one copy for all entries
	}
	set[key] = entry{session: c.session, boot: boot, epoch: c.epoch, version: version, generation: old.generation}
}

func (d *directory) remove(name string, version uint64) {
	set, key := d.place(name)
	if old, ok := set[key]; !ok || old.version <= version {
		delete(set, key)
	}
	if d.scanning {
		d.tombs[name] = max(d.tombs[name], version)
	}
}

// scanBegin must come before the first piece is read, and after the
// subscription is certain.
func (d *directory) scanBegin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.scanning, d.tombs = true, map[string]uint64{}
	d.generation++
	d.first, d.last, d.broken = 0, 0, false
}

// scanPiece takes a piece as it was at version.
func (d *directory) scanPiece(incarnation string, version uint64, rows []change) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.scanning || d.incarnation != incarnation {
		return false
	}
	for _, c := range rows {
		d.put(c, version, true)
	}
	return true
}

// scanEnd ends a scan that began at a version. It returns false if changes are
// missing all the same.
func (d *directory) scanEnd(incarnation string, began uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.scanning || d.incarnation != incarnation {
		return false
	}
	d.scanning, d.tombs = false, nil
	if d.broken || d.first > began+1 {
		d.synced = false
		return false
	}
	for _, set := range []map[string]entry{d.names, d.wild} {
		for key, e := range set {
			if e.generation != d.generation && e.version <= began {
				delete(set, key)
			}
		}
	}
	d.synced, d.applied = true, max(began, d.last)
	d.advance()
	return true
}

// scanAbort gives a scan up.
func (d *directory) scanAbort() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.scanning, d.tombs, d.synced = false, nil, false
}

// lookup returns who holds name, by a gateway that lives; certain as in
// [presence.Directory].
func (d *directory) lookup(name string) (e entry, held, certain bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.asOf.IsZero() || presence.Elapsed(d.asOf, d.now()) > presence.Staleness {
		return entry{}, false, false
	}
	if e, held = d.names[name]; held && d.lives(e) {
		return e, true, true
	}
	if prefix, ok := presence.Wildcard(name); ok {
		name = prefix
	}
	for prefix := range presence.Prefixes(name) {
		if e, held = d.wild[prefix]; held && d.lives(e) {
			return e, true, true
		}
	}
	return entry{}, false, true
}

func (d *directory) lives(e entry) bool {
	_, ok := d.alive[e.boot]
	return ok
}

// sessionsOf returns the sessions that the directory gives an instance.
func (d *directory) sessionsOf(boot string) map[string]struct{} {
	d.mu.RLock()
	defer d.mu.RUnlock()
	sessions := map[string]struct{}{}
	for _, set := range []map[string]entry{d.names, d.wild} {
		for _, e := range set {
			if e.boot == boot {
				sessions[e.session] = struct{}{}
			}
		}
	}
	return sessions
}

func (d *directory) instances() (list []presence.Instance, certain bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, peer := range d.alive {
		list = append(list, peer)
	}
	return list, !d.beatAt.IsZero() && presence.Elapsed(d.beatAt, d.now()) <= presence.Staleness
}

// size returns how many names there are.
func (d *directory) size() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.names) + len(d.wild)
}
