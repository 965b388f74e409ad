// Package config reads what an operator has set: a YAML file, the environment
// and flags, each overriding the one before it, into one checked [Config].
//
// One table, [Keys], names every key with its type, default, range and meaning;
// parsing, printing, the documentation page and the checks all follow from it.
// The package opens no connection and starts nothing. It refuses unknown keys
// and values out of range, and reports every problem it finds, not the first.
package config
