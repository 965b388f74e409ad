package address

import "strings"

const userPrefix = "us" + separator

// ParseUser reads us::{user}, which stands for all windows of a user where one
// recipient may be several; it is no address. It allocates nothing.
func ParseUser(s string) (user string, ok bool) {
	user, ok = strings.CutPrefix(s, userPrefix)
	if !ok || checkSegment(user) != reasonNone {
		return "", false
	}
	return user, true
}
