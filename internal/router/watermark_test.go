package router

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/presence"
)

func TestWatermarkRoundTrip(t *testing.T) {
	t.Parallel()
	for _, w := range []watermark{
		{}, {"ag::w::i::s": {0, none}}, {"ag::w::i::s": {none, none}, "event::*/3": {1<<62 + 5, 1<<63 - 2}},
	} {
		got, err := parseWatermark(w.encode())
		if err != nil || !maps.Equal(got, w) {
			t.Errorf("%v became %v, %v", w, got, err)
		}
	}
	if got, err := parseWatermark(nil); err != nil || len(got) != 0 {
		t.Errorf("nothing: %v, %v", got, err)
	}
	if b := (watermark{strings.Repeat("x", presence.MaxWatermark): {}}).encode(); b != nil {
		t.Errorf("%d bytes are more than a lease keeps", len(b))
	}
}

func FuzzWatermark(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{2})
	f.Add([]byte{1, 0})
	f.Add([]byte{1, 1, 'a', 1, 0, 1, 'a', 1, 0})
	f.Add([]byte{1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Add(watermark{"ag::w::i::s": {5, 9}}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := parseWatermark(b)
		if err != nil || len(b) == 0 {
			return
		}
		for key, m := range w {
			if key == "" || m.position < none || m.handed < none {
				t.Fatalf("%q: %v", key, m)
			}
		}
		again, err := parseWatermark(w.encode())
		if err != nil || !maps.Equal(again, w) {
			t.Fatalf("%v became %v, %v; from %v", w, again, err, bytes.Clone(b))
		}
	})
}
