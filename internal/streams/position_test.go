package streams_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/aether-gateway/gateway/internal/streams"
)

func TestPositionIsOneNumber(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		offset uint64
		index  int
		want   streams.Position
		text   string
	}{
		{0, 0, 0, "0+0"},
		{0, 999, 999, "0+999"},
		{1, 0, 1024, "1+0"},
		{5, 7, 5*1024 + 7, "5+7"},
	} {
		p := streams.At(c.offset, c.index)
		if p != c.want || p.Offset() != c.offset || p.Index() != c.index || p.String() != c.text {
			t.Errorf("At(%d, %d) is %d (%d, %d, %v), want %d", c.offset, c.index, uint64(p), p.Offset(), p.Index(), p, c.want)
		}
	}
	if p := streams.At(1, 5000); p.Offset() != 1 || p.Index() != 1023 {
		t.Errorf("an index too large leads to %v", p)
	}
	if p := streams.At(1, -1); p != streams.At(1, 0) {
		t.Errorf("an index below 0 leads to %v", p)
	}
}

func TestPositionsRise(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		offset, index := rapid.Uint64Range(0, 1<<53), rapid.IntRange(0, 1023)
		o1, i1 := offset.Draw(t, "offset"), index.Draw(t, "index")
		o2, i2 := offset.Draw(t, "other offset"), index.Draw(t, "other index")
		less := o1 < o2 || (o1 == o2 && i1 < i2)
		if got := streams.At(o1, i1) < streams.At(o2, i2); got != less {
			t.Fatalf("(%d, %d) before (%d, %d): %v", o1, i1, o2, i2, got)
		}
		if p := streams.At(o1, i1); p.Offset() != o1 || p.Index() != i1 {
			t.Fatalf("(%d, %d) comes back as (%d, %d)", o1, i1, p.Offset(), p.Index())
		}
	})
}
