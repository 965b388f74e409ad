package server

import (
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// frame is a message that is encoded already.
type frame struct{ b []byte }

// codec sends frames as they are and leaves everything else to protobuf. To
// clients it is protobuf.
type codec struct {
	proto encoding.CodecV2
	small *smallPool
	large mem.BufferPool
}

func newCodec() codec {
	return codec{
		proto: encoding.GetCodecV2(proto.Name), small: newSmallPool(),
		// Of a client that does not read, two or three frames stay here as
		// long as its stream lasts. The default pool gives a frame of 33 KiB a
		// buffer of a whole MiB.
		large: mem.NewTieredBufferPool(4<<10, 8<<10, 16<<10, 32<<10, 64<<10, 128<<10, 256<<10, 512<<10, 1<<20),
	}
}

func (c codec) Name() string { return proto.Name }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return c.proto.Marshal(v)
	}
	var pool mem.BufferPool = c.small
	if len(f.b) > smallBuffer {
		pool = c.large
	}
	buf := pool.Get(len(f.b))
	copy(*buf, f.b)
	return mem.BufferSlice{mem.NewBuffer(buf, pool)}, nil
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*inbound)
	if !ok {
		return c.proto.Unmarshal(data, v)
	}
	in.frame = new(aetherv1.UpstreamMessage)
	if c.proto.Unmarshal(data, in.frame) != nil {
		in.malformed = malformed(data.Materialize())
	}
	return nil
}

// smallBuffer holds most frames. The default pool's next size is 4 KiB, which
// it clears for each of them.
const smallBuffer = 1280

type smallPool struct{ pool sync.Pool }

var _ mem.BufferPool = (*smallPool)(nil)

func newSmallPool() *smallPool {
	return &smallPool{sync.Pool{New: func() any {
		b := make([]byte, smallBuffer)
		return &b
	}}}
}

func (p *smallPool) Get(length int) *[]byte {
	b := p.pool.Get().(*[]byte)
	*b = (*b)[:length]
	return b
}

func (p *smallPool) Put(b *[]byte) {
	*b = (*b)[:cap(*b)]
	p.pool.Put(b)
}
