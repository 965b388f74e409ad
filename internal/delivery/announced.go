package delivery

import "sort"

// maxAnnounced bounds the repeats that are announced and have not come; what is
// beyond comes without its flag.
const maxAnnounced = 4096

// Expects reports whether a message of this gateway was handed over live and
// has not been seen in the log.
func (in *Inbox) Expects(seq uint64) bool {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	n := in.expected.len()
	i := sort.Search(n, func(i int) bool { return in.expected.at(i).seq >= seq })
	return i < n && in.expected.at(i).seq == seq && in.expected.at(i).id != 0
}

// Announce says that a message of this gateway which is about to come repeats
// one that was handed over live and not stored.
func (in *Inbox) Announce(seq uint64) {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	if in.announced == nil {
		in.announced = map[uint64]struct{}{}
	}
	if len(in.announced) < maxAnnounced {
		in.announced[seq] = struct{}{}
	}
}

// repeats returns 1 for a message that was announced as a repeat, how often it
// was delivered before. It counts once, unless there is no room for it.
func (in *Inbox) repeats(seq uint64) uint8 {
	if _, announced := in.announced[seq]; announced {
		return 1
	}
	return 0
}
