package store

import (
	"context"
	"errors"
	"time"
)

// KVSpace says whose keys: those of one scope of one owner. What scopes there
// are, and which of the parts each has, is for those who use it.
type KVSpace struct {
	// Workspace is empty for keys that belong to none. With a workspace its keys
	// go.
	Workspace string
	Scope     uint8
	// Implementation and Owner are empty where the scope has none.
	Implementation, Owner string
}

// KVRow is a key and what it holds.
type KVRow struct {
	Key   string
	Value []byte
	// Form says what the value is, for those who use it.
	Form uint8
	// ChangedAt is when it was written last, to the millisecond; ExpiresAt is
	// zero for a key without an end.
	ChangedAt, ExpiresAt time.Time
}

// KVChange is what becomes of a key.
type KVChange struct {
	Verb KVVerb
	// Value, Form and ExpiresAt are those of a key that is put.
	Value     []byte
	Form      uint8
	ExpiresAt time.Time
}

// KVVerb is what is done to a key. The zero value leaves it as it is.
type KVVerb uint8

// The verbs.
const (
	KVKeep KVVerb = iota
	KVPut
	KVDelete
)

// KVAccount is who the keys are counted for, and how many there may be of them.
type KVAccount struct {
	Name string
	// Keys and Bytes bound all keys of the account together, 0 is no limit. A
	// change that makes no more of them is never refused. Bytes are counted in
	// steps of [KVStep].
	Keys, Bytes int64
}

// KVStep is in what steps the bytes of a key and its value are counted: most
// changes of a value then change no count.
const KVStep = 1024

// ErrUncertain is returned for a change of which it is not known whether it
// took effect: the answer of the store was lost. It may be made later still.
var ErrUncertain = errors.New("store: the outcome of the change is not known")

// KV keeps keys and values. Implementations are safe for concurrent use, also by
// several gateways; a method that returned nil has made its change durable.
// Keys compare by their bytes. A key that has expired, by the store's clock, is
// as one that does not exist. [ErrText] refuses a text.
type KV interface {
	// GetKV returns a key; ok is false if there is none.
	GetKV(ctx context.Context, space KVSpace, key string) (row KVRow, ok bool, err error)
	// ChangeKV lets change decide what becomes of a key, while nobody else
	// changes it. It is given the store's time, and nil if there is no such key;
	// it may be called several times, waits for nobody, and an error of it undoes
	// all and is returned. [ErrFull] refuses a key, or bytes, beyond the account's;
	// a key stays with the account that it was made for. Of [ErrUncertain] any
	// cause is in its chain, too; all other errors are certain to have changed
	// nothing.
	ChangeKV(ctx context.Context, space KVSpace, key string, account KVAccount,
		change func(now time.Time, current *KVRow) (KVChange, error)) error
	// ListKV returns, in order, up to limit keys that begin with prefix, taken
	// literally, and come after a key ("" is from the first on), with as many as
	// have up to so many bytes of keys and values, but at least one. more says
	// that there are others behind them.
	ListKV(ctx context.Context, space KVSpace, prefix, after string, limit int, bytes int64) (rows []KVRow, more bool, err error)
	// ListKVKeys is ListKV of the keys alone.
	ListKVKeys(ctx context.Context, space KVSpace, prefix, after string, limit int) (keys []string, more bool, err error)
	// SnapshotKV returns, from one look at the store, up to limit keys of a form
	// of each of two spaces, in order, with as many as have up to so many bytes;
	// those of the first go before. cut says that there are more.
	SnapshotKV(ctx context.Context, first, second KVSpace, form uint8, limit int, bytes int64) (rows [2][]KVRow, cut bool, err error)
	// PurgeKV removes all keys of an owner, whatever their scope, and returns how
	// many of them had not expired. It may be repeated.
	PurgeKV(ctx context.Context, owner string) (int64, error)
	// ExpireKV removes keys that have expired, some thousands at most, and returns
	// how many.
	ExpireKV(ctx context.Context) (int64, error)
	// CountKV returns what is counted for an account.
	CountKV(ctx context.Context, account string) (keys, bytes int64, err error)
}
