package admin

import (
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// plain refuses a text that an operator gives a name of something that will be
// looked for, if it holds what cannot be seen: characters of control and format,
// such as those that turn the direction of a line. Two such names look alike.
// Texts are field and value in turn. What exists already can be named all the
// same, to be removed.
func plain(texts ...string) error {
	for i := 0; i+1 < len(texts); i += 2 {
		for _, r := range texts[i+1] {
			if r == utf8.RuneError || !unicode.IsPrint(r) {
				return status.Errorf(codes.InvalidArgument, "%s holds a character that cannot be seen, in %.64q; such names are refused", texts[i], texts[i+1])
			}
		}
	}
	return nil
}

// plainAll is plain of a list.
func plainAll(field string, list []string) error {
	for _, text := range list {
		if err := plain(field, text); err != nil {
			return err
		}
	}
	return nil
}
