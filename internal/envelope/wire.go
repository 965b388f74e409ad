package envelope

import "google.golang.org/protobuf/encoding/protowire"

// What follows is protowire for the common case: tags and lengths of one or two
// bytes, without a call for each. Everything else is left to it. Appending and
// reading take half the time this way.

// Wire types, as they stand in a tag.
const (
	varintType  = uint32(protowire.VarintType)
	fixed64Type = uint32(protowire.Fixed64Type)
	bytesType   = uint32(protowire.BytesType)
)

// uvarint reads a varint and returns how many bytes it takes, less than one if
// there is none.
func uvarint(b []byte) (v uint64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return longUvarint(b)
}

func longUvarint(b []byte) (v uint64, n int) {
	if len(b) > 1 && b[1] < 0x80 {
		return uint64(b[0]&0x7f) | uint64(b[1])<<7, 2
	}
	return protowire.ConsumeVarint(b)
}

// appendTag appends the tag of a field; its number is below 2048.
func appendTag(dst []byte, field, wireType uint32) []byte {
	tag := field<<3 | wireType
	if tag < 0x80 {
		return append(dst, byte(tag))
	}
	return append(dst, byte(tag)|0x80, byte(tag>>7))
}

// sizeTag returns how many bytes appendTag appends.
func sizeTag(field uint32) int {
	if field < 0x10 {
		return 1
	}
	return 2
}

func appendLength(dst []byte, n int) []byte {
	switch {
	case n < 0x80:
		return append(dst, byte(n))
	case n < 0x4000:
		return append(dst, byte(n)|0x80, byte(n>>7))
	}
	return protowire.AppendVarint(dst, uint64(n))
}

// sizeLength returns how many bytes n bytes with their length take.
func sizeLength(n int) int {
	switch {
	case n < 0x80:
		return 1 + n
	case n < 0x4000:
		return 2 + n
	}
	return protowire.SizeBytes(n)
}

// appendBytes appends a field, unless it is empty.
func appendBytes[T string | []byte](dst []byte, field uint32, b T) []byte {
	if len(b) == 0 {
		return dst
	}
	return append(appendLength(appendTag(dst, field, bytesType), len(b)), b...)
}

// appendVarint appends a field, unless it is 0.
func appendVarint(dst []byte, field uint32, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return protowire.AppendVarint(appendTag(dst, field, varintType), v)
}

// sizeBytes returns how many bytes appendBytes appends.
func sizeBytes(field uint32, b []byte) int {
	if len(b) == 0 {
		return 0
	}
	return sizeTag(field) + sizeLength(len(b))
}

// sizeVarint returns how many bytes appendVarint appends.
func sizeVarint(field uint32, v uint64) int {
	if v == 0 {
		return 0
	}
	return sizeTag(field) + protowire.SizeVarint(v)
}
