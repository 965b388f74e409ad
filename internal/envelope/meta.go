package envelope

import "google.golang.org/protobuf/encoding/protowire"

// Meta returns one value of the metadata, a part of the envelope's bytes. It
// walks through all of it: it is for what is rarely asked.
func (v *View) Meta(key string) (value []byte, ok bool) {
	if !v.hasMetadata {
		return nil, false
	}
	each(v.raw, func(field protowire.Number, entry []byte) {
		if field != fieldMetadata {
			return
		}
		var k, val []byte
		each(entry, func(part protowire.Number, b []byte) {
			switch part {
			case 1:
				k = b
			case 2:
				val = b
			}
		})
		if string(k) == key {
			value, ok = val, true
		}
	})
	return value, ok
}

// Metadata returns a copy of the metadata, nil if there is none.
func (v *View) Metadata() map[string]string {
	if !v.hasMetadata {
		return nil
	}
	m := map[string]string{}
	each(v.raw, func(field protowire.Number, entry []byte) {
		if field != fieldMetadata {
			return
		}
		var k, val string
		each(entry, func(part protowire.Number, b []byte) {
			switch part {
			case 1:
				k = string(b)
			case 2:
				val = string(b)
			}
		})
		m[k] = val
	})
	return m
}

// each calls f for every field of bytes in b, as far as b can be read.
func each(b []byte, f func(protowire.Number, []byte)) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		m := protowire.ConsumeFieldValue(num, typ, b)
		if m < 0 {
			return
		}
		if typ == protowire.BytesType {
			val, _ := protowire.ConsumeBytes(b)
			f(num, val)
		}
		b = b[m:]
	}
}
