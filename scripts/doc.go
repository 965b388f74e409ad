// Package scripts holds the repository's shell scripts; the Go files in it only
// test them.
package scripts
