package subject

// Grammar says what the wildcards of a pattern mean. The zero value is none.
type Grammar uint8

// The grammars.
const (
	Segmented Grammar = iota + 1
	Subtree
	Strict

	grammarEnd
)

var grammarNames = [grammarEnd]string{Segmented: "segmented", Subtree: "subtree", Strict: "strict"}

// String is the name by which rules and configuration call the grammar, "" for
// none.
func (g Grammar) String() string {
	if g < grammarEnd {
		return grammarNames[g]
	}
	return ""
}

// ParseGrammar finds the grammar of that exact name.
func ParseGrammar(name string) (Grammar, bool) {
	for g := Segmented; g < grammarEnd; g++ {
		if grammarNames[g] == name {
			return g, true
		}
	}
	return 0, false
}

const (
	// MaxBytes bounds a pattern over subjects, and what Subtree and Strict take
	// for a subject.
	MaxBytes = 256
	// MaxAddressBytes is the same for addresses and identities: 256 characters
	// of at most four bytes.
	MaxAddressBytes = 1024
	// MaxSegments is the depth of a pattern of Subtree and Strict, and of what
	// they match. Segmented has no other bound than MaxBytes.
	MaxSegments = 20
)
