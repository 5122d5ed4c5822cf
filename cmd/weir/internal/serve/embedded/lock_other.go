//go:build !unix

package embedded

// dirLock prevents two workers from writing to one store, on systems that support it.
type dirLock struct{}

// lockDir always fails. On this system two servers could write to one store without a lock, and the effect of a sync is
// untested.
func lockDir(string) (*dirLock, error) { return nil, ErrNotHere }

// Close has nothing to release.
func (*dirLock) Close() error { return nil }

func diskLeft(string) (int64, error) { return 0, ErrNotHere }
