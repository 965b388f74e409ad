package address

import "testing"

func TestParseUser(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"us::u": "u", "us::": "", "us": "", "us::u::w": "", "us::a b": "", "uw::u": "", "us::*": ""} {
		if user, ok := ParseUser(text); user != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", text, user, ok)
		}
	}
}

func FuzzParseUser(f *testing.F) {
	for _, s := range []string{"us::u", "us::u::w", "us:::", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		user, ok := ParseUser(s)
		if !ok {
			return
		}
		if a, err := User(user, "w"); len(user) <= 100 && (err != nil || a.UserID() != user) {
			t.Errorf("%q: %v, %v", s, a, err)
		}
	})
}
