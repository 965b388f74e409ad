package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// keyFilesEvery is how often key files are looked at: twice, so that a file
// which is being written can be told from a bad one, takes one second.
const keyFilesEvery = 500 * time.Millisecond

// FileKeys are the keys of files, as the files are now. A file that is changed,
// added to a directory, or gone, counts within a second, without a restart; with
// no file left there is no key.
//
// A file that is gone or holds no usable key keeps its old one for one look more,
// since it may be being replaced; then that is not accepted any more either. Of
// files that give one id to two keys neither is accepted.
//
// It is safe for concurrent use.
type FileKeys struct {
	files   []KeyFile
	log     *slog.Logger
	changed func()
	keys    atomic.Pointer[Keys]

	mu      sync.Mutex // held while looking; Lookup does not take it
	loaded  map[string]keyFileState
	problem string // between files, as it was logged last
}

// keyFileState is what a file was when it was last looked at.
type keyFileState struct {
	file   KeyFile
	sum    [sha256.Size]byte
	key    Key
	usable bool
	// late says that key is of the content before: there is none now.
	late bool
}

var _ KeySource = (*FileKeys)(nil)

// OpenKeys reads key files as LoadKeys does, with the same errors. [FileKeys.Watch]
// follows their changes. A nil log tells nobody.
func OpenKeys(log *slog.Logger, files ...KeyFile) (*FileKeys, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	keys, err := LoadKeys(files...)
	if err != nil {
		return nil, err
	}
	f := &FileKeys{files: slices.Clone(files), log: log}
	f.keys.Store(keys)
	f.Look()
	return f, nil
}

// Current is the set as it is now.
func (f *FileKeys) Current() *Keys { return f.keys.Load() }

// OnChange has f called when keys have changed, by who looks. It is set before
// [FileKeys.Watch].
func (f *FileKeys) OnChange(changed func()) { f.changed = changed }

// Holds implements KeySource.
func (f *FileKeys) Holds(k Key) bool { return f.Current().Holds(k) }

// Lookup implements KeySource. It never waits.
func (f *FileKeys) Lookup(ctx context.Context, kid string, named bool) ([]Key, error) {
	return f.Current().Lookup(ctx, kid, named)
}

// Watch follows changes of the files until the context ends.
func (f *FileKeys) Watch(ctx context.Context) {
	tick := time.NewTicker(keyFilesEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f.Look()
		}
	}
}

// Look takes over what has changed in the files since it was last called.
func (f *FileKeys) Look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	var keys []Key
	now := map[string]keyFileState{}
	take := func(file KeyFile) {
		if state, there := f.lookAt(file); there {
			now[file.Path] = state
			if state.usable {
				keys = append(keys, state.key)
			}
		}
	}
	for _, file := range f.files {
		found, err := expand(file)
		if err != nil {
			f.log.Error("a directory of keys cannot be read; its keys are not accepted", "directory", file.Path, "error", err)
		}
		for _, one := range found {
			take(one)
		}
	}
	for path, was := range f.loaded {
		if _, there := now[path]; !there { // gone from a directory
			take(was.file)
		}
	}
	f.loaded = now
	keys, problem := compatible(keys)
	if problem != f.problem && problem != "" {
		f.log.Error("the key files do not go together: " + problem)
	}
	f.problem = problem
	set, err := newKeys(keys, maxKeys)
	if err != nil { // cannot be: they are compatible
		set = &Keys{}
	}
	old := f.keys.Swap(set)
	if old.same(set) {
		return
	}
	f.log.Info("the keys for credentials have changed", "before", old.String(), "now", set.String())
	if f.changed != nil {
		f.changed()
	}
}

// lookAt reads one file. It is not there if its key has been withdrawn.
func (f *FileKeys) lookAt(file KeyFile) (state keyFileState, there bool) {
	was, known := f.loaded[file.Path]
	content, err := readKeyFile(file.Path)
	if gone := errors.Is(err, fs.ErrNotExist); gone && (!known || !was.usable || was.late) {
		return keyFileState{}, false
	}
	sum := sha256.Sum256(content)
	if known && err == nil && was.sum == sum && !was.late {
		return was, true
	}
	var key Key
	if err == nil {
		key, err = file.parse(content)
	}
	switch {
	case err == nil:
		if known {
			f.log.Info("a key file has a new key", "file", file.Path)
		}
		return keyFileState{file: file, sum: sum, key: key, usable: true}, true
	case known && was.usable && !was.late:
		return keyFileState{file: file, sum: sum, key: was.key, usable: true, late: true}, true
	case !known || was.usable:
		f.log.Error("a key file is not usable; no key of it is accepted", "file", file.Path, "error", err)
	}
	return keyFileState{file: file, sum: sum}, true
}

// compatible leaves the keys that can be in one set, and says what is wrong with
// the others.
func compatible(keys []Key) (fit []Key, problem string) {
	count := map[string]int{}
	for _, k := range keys {
		count[k.id]++
	}
	for _, k := range keys {
		switch {
		case count[k.id] > 1:
			problem = fmt.Sprintf("several have the id %q, of which none is accepted", k.id)
		case len(fit) == maxKeys:
			problem = fmt.Sprintf("only the first %d are accepted", maxKeys)
		default:
			fit = append(fit, k)
		}
	}
	return fit, problem
}
