package tracker

import "math/bits"

const (
	wheelBits   = 6
	wheelSlots  = 1 << wheelBits
	wheelLevels = 8 // 2^48 ms from one end to the other
)

// wheel keeps deadlines in milliseconds, exactly. An item is a small number of
// its owner's; adding and removing take the same time however many there are.
//
// A deadline lies on the level of the highest group of six bits in which it
// differs from the present, so that everything on a level comes before
// everything on the next.
type wheel struct {
	now   int64 // everything up to here has been handed out
	heads [wheelLevels][wheelSlots]int32
	full  [wheelLevels]uint64 // which heads are not empty
	items []wheelItem
}

type wheelItem struct {
	at          int64
	next, prev  int32 // 0: none; else one more than the item
	level, slot int8
	in          bool
}

// add puts an item in that is not in. What is due already comes with the next
// millisecond.
func (w *wheel) add(item int32, at int64) {
	for int(item) >= len(w.items) {
		w.items = append(w.items, wheelItem{})
	}
	w.put(item, max(at, w.now+1))
}

func (w *wheel) put(item int32, at int64) {
	level := (bits.Len64(uint64(at^w.now)) - 1) / wheelBits
	slot := int(at>>(level*wheelBits)) & (wheelSlots - 1)
	it := &w.items[item]
	*it = wheelItem{at: at, next: w.heads[level][slot], level: int8(level), slot: int8(slot), in: true}
	if it.next != 0 {
		w.items[it.next-1].prev = item + 1
	}
	w.heads[level][slot] = item + 1
	w.full[level] |= 1 << slot
}

// remove takes an item out, if it is in.
func (w *wheel) remove(item int32) {
	if int(item) >= len(w.items) || !w.items[item].in {
		return
	}
	it := &w.items[item]
	if it.next != 0 {
		w.items[it.next-1].prev = it.prev
	}
	if it.prev != 0 {
		w.items[it.prev-1].next = it.next
	} else {
		w.heads[it.level][it.slot] = it.next
		if it.next == 0 {
			w.full[it.level] &^= 1 << it.slot
		}
	}
	*it = wheelItem{}
}

// next returns the first place that holds something and when its time begins:
// no deadline is earlier.
func (w *wheel) next() (level, slot int, at int64, ok bool) {
	for level = range wheelLevels {
		if w.full[level] == 0 {
			continue
		}
		slot = bits.TrailingZeros64(w.full[level])
		shift := level * wheelBits
		at = w.now>>(shift+wheelBits)<<(shift+wheelBits) | int64(slot)<<shift
		return level, slot, at, true
	}
	return 0, 0, 0, false
}

// advance moves the present and hands out what is due, in the order of the
// deadlines. due may remove items, and must not add any.
func (w *wheel) advance(now int64, due func(item int32)) {
	for {
		level, slot, at, ok := w.next()
		if !ok || at > now {
			w.now = max(w.now, now)
			return
		}
		w.now = at
		// Each goes to a lower level, or is due: the place becomes empty.
		for w.heads[level][slot] != 0 {
			item := w.heads[level][slot] - 1
			deadline := w.items[item].at
			w.remove(item)
			if deadline <= at {
				due(item)
			} else {
				w.put(item, deadline)
			}
		}
	}
}
