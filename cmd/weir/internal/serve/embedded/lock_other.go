//go:build !unix

package embedded

// dirLock keeps two workers from writing to one store, on systems that support it.
type dirLock struct{}

// lockDir always fails: without a lock two servers could write to one store, and the effect of a sync on this system is
// untested.
func lockDir(string) (*dirLock, error) { return nil, ErrNotHere }

// Close has nothing to release.
func (*dirLock) Close() error { return nil }

func diskLeft(string) (int64, error) { return 0, ErrNotHere }
