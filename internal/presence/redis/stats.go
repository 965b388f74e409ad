package redis

// Stats are counts since the start, but for Names and Leases.
type Stats struct {
	Names          int    // in the directory
	Leases         int    // of this gateway
	Fences         uint64 // how often the gateway fenced itself with leases
	Scans          uint64 // of the directory, in full
	Beats          uint64 // heartbeats that were confirmed
	BeatsFailed    uint64
	NoticesLost    uint64 // not sent, because Redis was away
	NoticesDropped uint64 // received, and not taken by a slow listener
}

// Stats returns the counts.
func (p *Presence) Stats() Stats {
	p.mu.RLock()
	s := p.stats
	s.Leases = len(p.own)
	p.mu.RUnlock()
	s.Names = p.dir.size()
	p.out.mu.Lock()
	s.NoticesLost = p.out.lost
	p.out.mu.Unlock()
	s.NoticesDropped = p.inbox.Dropped()
	return s
}

func (p *Presence) count(n *uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*n++
}
