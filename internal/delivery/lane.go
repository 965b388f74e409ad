package delivery

import (
	"encoding/binary"
	"sync"
)

// chunkSize is what a lane allocates at once. A larger frame gets a chunk of
// its own.
const chunkSize = 32 << 10

// chunk holds frames one behind the other, each after its length in four
// bytes.
type chunk struct {
	b []byte
	r int // what has been read of b
}

var chunks = sync.Pool{New: func() any { return &chunk{b: make([]byte, 0, chunkSize)} }}

func (c *chunk) release() {
	if cap(c.b) != chunkSize {
		return
	}
	c.b, c.r = c.b[:0], 0
	chunks.Put(c)
}

// lane is a first-in, first-out queue of encoded frames. The mailbox that
// owns it locks and bounds it. Nothing is allocated per frame.
type lane struct {
	chain  queue[*chunk]
	frames int
	bytes  int
}

// push makes room for a frame of size bytes and has write append it.
func (l *lane) push(size int, write func(dst []byte) []byte) {
	c := l.room(size)
	c.b = binary.LittleEndian.AppendUint32(c.b, uint32(size))
	c.b = write(c.b)
	l.frames++
	l.bytes += size
}

// pushFrame appends a frame that is encoded already.
func (l *lane) pushFrame(frame []byte) {
	c := l.room(len(frame))
	c.b = binary.LittleEndian.AppendUint32(c.b, uint32(len(frame)))
	c.b = append(c.b, frame...)
	l.frames++
	l.bytes += len(frame)
}

func (l *lane) room(size int) *chunk {
	need := 4 + size
	if n := l.chain.len(); n > 0 {
		if last := *l.chain.at(n - 1); cap(last.b)-len(last.b) >= need {
			return last
		}
	}
	var c *chunk
	if need > chunkSize {
		c = &chunk{b: make([]byte, 0, need)}
	} else {
		c = chunks.Get().(*chunk)
	}
	l.chain.push(c)
	return c
}

// pop returns the oldest frame. The frame stays valid until the chunks that
// pop put into retired are released.
func (l *lane) pop(retired []*chunk) (frame []byte, _ []*chunk, ok bool) {
	if l.frames == 0 {
		return nil, retired, false
	}
	c := *l.chain.at(0)
	size := int(binary.LittleEndian.Uint32(c.b[c.r:]))
	frame = c.b[c.r+4 : c.r+4+size : c.r+4+size]
	c.r += 4 + size
	l.frames--
	l.bytes -= size
	if c.r == len(c.b) {
		// Also the last chunk: a reader may still hold its frames, so that it
		// cannot be written from the start again.
		retired = append(retired, c)
		l.chain.drop(1)
	}
	return frame, retired, true
}

// clear forgets all frames. The chunks are left to the garbage collector,
// because a reader may hold frames of them.
func (l *lane) clear() { *l = lane{} }
