//go:build !unix

package embedded

// dirLock is what keeps two workers from writing to one store, where there is such a thing.
type dirLock struct{}

// lockDir refuses: without a lock two servers could write to one store, and what a sync is worth here nobody has tried.
func lockDir(string) (*dirLock, error) { return nil, ErrNotHere }

// Close has nothing to give free.
func (*dirLock) Close() error { return nil }

func diskLeft(string) (int64, error) { return 0, ErrNotHere }
