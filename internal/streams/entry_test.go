package streams_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/aether-gateway/gateway/internal/streams"
)

func encode(envelopes ...string) []byte {
	data := streams.BeginEntry(nil)
	for _, e := range envelopes {
		data = streams.AppendEnvelope(data, []byte(e))
	}
	return data
}

// decode returns "index:bytes" of each readable envelope.
func decode(data []byte) (list []string, skipped int, damaged bool) {
	it := streams.Open(data)
	for it.Next() {
		list = append(list, fmt.Sprintf("%d:%s", it.Index(), it.Bytes()))
	}
	if it.Next() {
		list = append(list, "more after the end")
	}
	return list, it.Skipped(), it.Damaged()
}

// TestEntryBytes holds the format: what is in a log must stay readable.
func TestEntryBytes(t *testing.T) {
	t.Parallel()
	// 01, then 03 + CRC-32C of "abc" + "abc", then an empty one, then 01 + …
	const want = "01" + "03364b3fb7616263" + "00" + "01c1d04330" + "61"
	data := encode("abc", "", "a")
	if got := hex.EncodeToString(data); got != want {
		t.Errorf("encoded %s, want %s", got, want)
	}
}

func TestEntryDamage(t *testing.T) {
	t.Parallel()
	good := encode("one", "two", "three")
	spoil := func(at int) []byte {
		data := slices.Clone(good)
		data[at] ^= 0x10
		return data
	}
	tooMany := streams.BeginEntry(nil)
	for range 1025 {
		tooMany = streams.AppendEnvelope(tooMany, []byte("x"))
	}
	manyEmpty := append(streams.BeginEntry(nil), make([]byte, 1025)...)
	for _, c := range []struct {
		name    string
		data    []byte
		want    []string
		skipped int
		damaged bool
	}{
		{"whole", good, []string{"0:one", "1:two", "2:three"}, 0, false},
		{"without envelopes", encode(), nil, 0, false},
		{"nothing", nil, nil, 0, true},
		{"another version", append([]byte{2}, good[1:]...), nil, 0, true},
		{"empty envelopes keep their index", encode("", "a", "", "", "b"), []string{"1:a", "4:b"}, 0, false},
		{"bytes spoilt", spoil(1 + 8 + 1 + 4), []string{"0:one", "2:three"}, 1, false},
		{"checksum spoilt", spoil(1 + 1), []string{"1:two", "2:three"}, 1, false},
		{"cut in the bytes", good[:len(good)-1], []string{"0:one", "1:two"}, 0, true},
		{"cut in the checksum", good[:1+8+8+3], []string{"0:one", "1:two"}, 0, true},
		{"cut in a length", append(encode("one"), 0x80), []string{"0:one"}, 0, true},
		{"length past the end", append(encode("one"), 0xff, 0xff, 3, 0, 0, 0, 0), []string{"0:one"}, 0, true},
		{"length of 2^64-1", append(append(encode("one"), bytes.Repeat([]byte{0xff}, 9)...), 1, 0, 0, 0, 0), []string{"0:one"}, 0, true},
		{"length that overflows", append(append(encode("one"), bytes.Repeat([]byte{0xff}, 10)...), 1), []string{"0:one"}, 0, true},
	} {
		got, skipped, damaged := decode(c.data)
		if !slices.Equal(got, c.want) || skipped != c.skipped || damaged != c.damaged {
			t.Errorf("%s: %v, skipped %d, damaged %v; want %v, %d, %v", c.name, got, skipped, damaged, c.want, c.skipped, c.damaged)
		}
	}
	if got, _, damaged := decode(tooMany); len(got) != 1024 || !damaged {
		t.Errorf("of 1025 envelopes %d are read, damaged %v", len(got), damaged)
	}
	if got, _, damaged := decode(manyEmpty); len(got) != 0 || !damaged {
		t.Errorf("of 1025 empty envelopes %d are read, damaged %v", len(got), damaged)
	}
}

func TestEntryRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		envelopes := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 0, 30).Draw(t, "envelopes")
		data := streams.BeginEntry(nil)
		var want []string
		for i, e := range envelopes {
			data = streams.AppendEnvelope(data, e)
			if len(e) > 0 {
				want = append(want, fmt.Sprintf("%d:%s", i, e))
			}
		}
		got, skipped, damaged := decode(data)
		if !slices.Equal(got, want) || skipped != 0 || damaged {
			t.Fatalf("%q, skipped %d, damaged %v; want %q", got, skipped, damaged, want)
		}
	})
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(encode())
	f.Add(encode("one", "", "three"))
	f.Add(append(encode("one"), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1))
	f.Add(append(streams.BeginEntry(nil), make([]byte, 2000)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		before := slices.Clone(data)
		last, total := -1, 0
		it := streams.Open(data)
		for it.Next() {
			if it.Index() <= last || it.Index() > 1023 {
				t.Fatalf("index %d comes after %d", it.Index(), last)
			}
			last = it.Index()
			if total += len(it.Bytes()) + 5; len(it.Bytes()) == 0 || total > len(data) {
				t.Fatalf("%d bytes of envelopes in %d of data", total, len(data))
			}
		}
		if it.Next() {
			t.Fatal("there is more after the end")
		}
		if !bytes.Equal(before, data) {
			t.Fatal("the data was changed")
		}
		// What is read encodes to an entry that reads the same.
		again := streams.BeginEntry(nil)
		next := 0
		for it := streams.Open(data); it.Next(); next++ {
			for ; next < it.Index(); next++ {
				again = streams.AppendEnvelope(again, nil)
			}
			again = streams.AppendEnvelope(again, it.Bytes())
		}
		want, _, _ := decode(data)
		got, skipped, damaged := decode(again)
		if !slices.Equal(got, want) || skipped > 0 || damaged {
			t.Fatalf("%q comes back as %q", want, got)
		}
	})
}

func TestEntryWalkAllocatesNothing(t *testing.T) {
	data := encode("one", "two", "", "three")
	if n := testing.AllocsPerRun(100, func() {
		for it := streams.Open(data); it.Next(); {
			_ = it.Bytes()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkOpen(b *testing.B) {
	data := streams.BeginEntry(nil)
	for range 500 {
		data = streams.AppendEnvelope(data, make([]byte, 256))
	}
	b.ReportAllocs()
	for b.Loop() {
		for it := streams.Open(data); it.Next(); {
			_ = binary.BigEndian.Uint16(it.Bytes())
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/envelope")
}
