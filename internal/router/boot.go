package router

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
)

// Boot is the random id of a gateway's process: the origin of its envelopes,
// the name of its producers, and what its peers call it (delivery rules P1,
// P3). It is never 0 and never used twice.
type Boot uint64

// NewBoot draws a boot id.
func NewBoot() Boot {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	b[0] |= 1              // not 0, which is "no origin"
	return Boot(binary.BigEndian.Uint64(b[:]))
}

// String returns the id as 16 hexadecimal digits.
func (b Boot) String() string {
	return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, uint64(b)))
}
