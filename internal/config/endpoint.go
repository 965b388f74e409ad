package config

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Off turns an optional listener off.
const Off = "off"

// parseListen checks HOST:PORT, where HOST may be empty for every interface
// and port 0 picks a free one.
func parseListen(s string) (string, error) {
	s = strings.TrimSpace(s)
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", fmt.Errorf("%q is no listen address; write HOST:PORT such as 127.0.0.1:50051", s)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("%q: the port must be a number from 0 to 65535", s)
	}
	if strings.ContainsAny(host, " \t/") {
		return "", fmt.Errorf("%q: the host is malformed", s)
	}
	return s, nil
}
