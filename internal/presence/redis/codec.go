package redis

import (
	"errors"
	"strconv"
)

// Messages on the channels are rows of netstrings ("5:hello"), which scripts
// can write as well.

var errNetstring = errors.New("presence: malformed message")

func appendField(b []byte, s string) []byte {
	b = strconv.AppendInt(b, int64(len(s)), 10)
	b = append(b, ':')
	return append(b, s...)
}

// cutField returns the first field of b and what follows it.
func cutField(b string) (field, rest string, err error) {
	n := 0
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == ':' && i > 0:
			if n > len(b)-i-1 {
				return "", "", errNetstring
			}
			return b[i+1 : i+1+n], b[i+1+n:], nil
		case c < '0' || c > '9' || i > 8 || i == 1 && b[0] == '0':
			return "", "", errNetstring
		default:
			n = n*10 + int(c-'0')
		}
	}
	return "", "", errNetstring
}

// fields splits b into exactly n fields; a negative n allows any number.
func fields(b string, n int) ([]string, error) {
	var list []string
	for b != "" {
		field, rest, err := cutField(b)
		if err != nil {
			return nil, err
		}
		list, b = append(list, field), rest
		if n >= 0 && len(list) > n {
			return nil, errNetstring
		}
	}
	if n >= 0 && len(list) != n {
		return nil, errNetstring
	}
	return list, nil
}

// change is one name's new state in the directory.
type change struct {
	name, session, boot string
	epoch               uint64
}

// parseChanges parses what a script publishes about the directory.
func parseChanges(message string) (incarnation string, version uint64, changes []change, err error) {
	list, err := fields(message, -1)
	if err != nil {
		return "", 0, nil, err
	}
	if len(list) < 6 || len(list)%4 != 2 {
		return "", 0, nil, errNetstring
	}
	if version, err = strconv.ParseUint(list[1], 10, 64); err != nil {
		return "", 0, nil, errNetstring
	}
	if changes, err = parseRows(list[2:]); err != nil {
		return "", 0, nil, err
	}
	return list[0], version, changes, nil
}

// parseRows parses rows of name, session, instance, epoch.
func parseRows(list []string) ([]change, error) {
	if len(list)%4 != 0 {
		return nil, errNetstring
	}
	changes := make([]change, 0, len(list)/4)
	for ; len(list) > 0; list = list[4:] {
		epoch, err := strconv.ParseUint(list[3], 10, 64)
		if err != nil || list[0] == "" {
			return nil, errNetstring
		}
		changes = append(changes, change{name: list[0], session: list[1], boot: list[2], epoch: epoch})
	}
	return changes, nil
}
