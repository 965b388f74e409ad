package delivery

// Twin says that the log shows, at position, another copy of the message that
// was handed over live as seq, or waits for a fence as such. It reports whether
// that was delivered: the delivery has its position now, and this copy is not
// handed over. If it is, the one that waits is not (delivery rules P6, S3).
func (in *Inbox) Twin(seq uint64, position int64) (delivered bool) {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	for i := range in.expected.len() {
		if e := *in.expected.at(i); e.seq == seq {
			in.place(e.id, position)
			in.expected.remove(i)
			return true
		}
	}
	for i := range in.held {
		if in.held[i].seq == seq {
			in.heldSize -= len(in.held[i].envelope)
			in.held = append(in.held[:i], in.held[i+1:]...)
			break
		}
	}
	return false
}

// Again says that the log shows, at position, a second copy of a message, which
// this gateway numbered seq. It is not handed over; if it was, before the log
// told them apart, it has its position now.
func (in *Inbox) Again(seq uint64, position int64) {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	in.show(seq, position)
}
