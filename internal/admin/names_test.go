package admin

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestPlain(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "team", "Überführung", "ag::w::*::*", "日本", "e\u0301", "a note"} {
		if err := plain("the name", good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"te\u200bam", "\u202emaet", "a\x00", "a\x1b[31m", "a\u00ad", "a\ufeff", "\xff", "a\ue000"} {
		if err := plain("the name", "team", "the other", bad); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := plainAll("a workspace", []string{"a", "b\u200b"}); err == nil {
		t.Error("a list with one")
	}
}
