// Package tlsfile serves TLS with certificates from files, and follows the files
// when they change, without a restart and without touching connections.
//
// It decides nothing about who connects: which client certificates stand for
// whom is for package auth.
//
// It imports nothing of ours.
package tlsfile
