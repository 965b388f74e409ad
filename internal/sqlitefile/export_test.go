package sqlitefile

import "context"

// SetFoldStep makes the writer fold at other sizes, for the tests.
func (f *File) SetFoldStep(step int64) error {
	return f.Write(context.Background(), func(*Tx) error {
		f.foldAt, f.foldStep = step, step
		return nil
	})
}
