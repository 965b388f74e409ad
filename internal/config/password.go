package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxPassword bounds a file that holds a password; a larger one is surely
// something else.
const maxPassword = 4096

// readPasswords puts passwords that are kept in files into the URLs that they
// are for. found are the problems so far: a key that is among them is left
// alone.
func (c *Config) readPasswords(found Problems) Problems {
	var ps Problems
	for i := range table {
		k := &table[i]
		if k.PasswordOf == "" || !k.hasEffect(c.Mode) || found.about(k.Name) || found.about(k.PasswordOf) {
			continue
		}
		path := *k.field(c).(*string)
		if path == "" {
			continue
		}
		target := byName[k.PasswordOf]
		if c.isEmpty(target) {
			if target.Required != c.Mode { // else that is what is said
				ps = append(ps, Problem{Key: k.Name, Source: c.sources[k.Name], Text: "is set, but " + target.Name + " is not"})
			}
			continue
		}
		password, err := readPassword(path)
		if err == nil {
			err = setPassword(target, target.field(c), password)
		}
		if err != nil {
			ps = append(ps, Problem{Key: k.Name, Source: c.sources[k.Name], Text: oneLine(err)})
		}
	}
	return ps
}

// readPassword is the content of a file without the newline at its end.
func readPassword(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPassword+1))
	if err != nil {
		return "", err
	}
	password, err := parsePassword(data)
	if err != nil {
		return "", fmt.Errorf("%s %w", path, err)
	}
	return password, nil
}

// parsePassword does not repeat any of it in its errors.
func parsePassword(data []byte) (string, error) {
	if len(data) > maxPassword {
		return "", fmt.Errorf("is larger than %d bytes, too large for a password", maxPassword)
	}
	password := string(bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r")))
	switch {
	case password == "":
		return "", errors.New("is empty")
	case !utf8.ValidString(password) || strings.ContainsFunc(password, unicode.IsControl):
		return "", errors.New("holds more than one line, or control characters")
	}
	return password, nil
}

// setPassword gives a URL, or each of several, a password.
func setPassword(k *Key, field any, password string) error {
	list := []*string{}
	switch v := field.(type) {
	case *string:
		list = append(list, v)
	case *[]string:
		for i := range *v {
			list = append(list, &(*v)[i])
		}
	}
	for _, text := range list {
		u, err := url.Parse(*text) // it has been parsed before
		if err != nil {
			return errors.New(k.Name + " is no URL")
		}
		if _, has := u.User.Password(); has {
			return fmt.Errorf("is set, but %s holds a password, too: give one of the two", k.Name)
		}
		name := u.User.Username()
		if name == "" && k.Schemes[0] != schemeRedis { // Redis has a user without a name
			return fmt.Errorf("is set, but %s names no user that the password would be for", k.Name)
		}
		u.User = url.UserPassword(name, password)
		*text = u.String()
	}
	return nil
}
