package program

import (
	"bytes"
	"sync"
)

// Book is a log that a test can read while it is written. It is safe for concurrent use.
type Book struct {
	Mu   sync.Mutex
	Text bytes.Buffer
}

// Write implements io.Writer.
func (b *Book) Write(p []byte) (int, error) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.Text.Write(p)
}

// String returns everything written so far.
func (b *Book) String() string {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.Text.String()
}
