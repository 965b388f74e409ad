// Package migrations holds the SQL that makes the store's tables, one
// directory per engine, in the form that goose reads. The two directories have
// the same files: what one engine's schema can keep, so can the other's.
//
// A file that was released is never changed; a change is a new file.
package migrations

import "embed"

// Files has the directories postgres and sqlite.
//
//go:embed postgres/*.sql sqlite/*.sql
var Files embed.FS
