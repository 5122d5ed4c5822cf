package restoreguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"weir/bucket/stream"
)

// note is the evidence about a store that is kept outside the store.
type note struct {
	Schema     int             `json:"schema"` // stream.Schema of the weir that wrote it
	Store      string          `json:"store"`
	Generation uint64          `json:"generation"`
	At         time.Time       `json:"at"`
	Streams    map[string]Mark `json:"streams,omitempty"`
}

// mostNote bounds the bytes of a note that are read.
const mostNote = 4 << 20

// Place keeps notes about stores, outside these stores. Read returns nil if there is no note. Only one goroutine at a
// time may use a Place.
type Place interface {
	Read(ctx context.Context, store string) ([]byte, error)
	Write(ctx context.Context, store string, data []byte) error
	String() string // for an operator
}

// readNote returns a place's note about a store, nil if there is none. It fails if a later version of weir has written
// the note.
func readNote(ctx context.Context, p Place, store string) (*note, error) {
	data, err := p.Read(ctx, store)
	if err != nil || data == nil {
		return nil, err
	}
	var n note
	if err := json.Unmarshal(data, &n); err != nil {
		return nil, fmt.Errorf("what is noted of the store in %s cannot be read: %w", p, err)
	}
	if n.Schema > stream.Schema {
		return nil, fmt.Errorf("what is noted of the store in %s was written by a later version of weir: start that version", p)
	}
	return &n, nil
}

func (n *note) write(ctx context.Context, p Place) error {
	data, err := json.Marshal(n)
	if err != nil {
		panic("a note that JSON cannot carry: " + err.Error())
	}
	return p.Write(ctx, n.Store, data)
}

// Directory is a Place in the directory WEIR_STATE_DIR. It keeps one note, about one store.
type Directory string

const noteFile = "store.json"

// OpenDirectory creates the directory if it is missing, with access only for this user. It fails if the directory is
// not writable.
func OpenDirectory(path string) (Directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", fmt.Errorf("WEIR_STATE_DIR: %w", err)
	}
	f, err := os.CreateTemp(path, noteFile+".new-*")
	if err == nil {
		err = errors.Join(f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		return "", fmt.Errorf("WEIR_STATE_DIR: %w", err)
	}
	return Directory(path), nil
}

// Read implements Place.
func (d Directory) Read(context.Context, string) ([]byte, error) {
	f, err := os.Open(filepath.Join(string(d), noteFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("WEIR_STATE_DIR: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, mostNote))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("WEIR_STATE_DIR: %w", err)
	}
	return data, nil
}

// Write implements Place.
func (d Directory) Write(_ context.Context, _ string, data []byte) error {
	err := replaceFile(filepath.Join(string(d), noteFile), func(*os.File) ([]byte, error) { return data, nil })
	if err != nil {
		return fmt.Errorf("WEIR_STATE_DIR: %w", err)
	}
	return nil
}

func (d Directory) String() string { return string(d) }
