package restoreguard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// identityFile is the file by which weir recognizes a data directory.
const identityFile = "weir.identity"

// identity is the content of identityFile. It describes that file itself.
type identity struct {
	What  string    `json:"what"`
	Inode uint64    `json:"inode"`
	Born  int64     `json:"born,omitempty"` // time of birth in ns since 1970; 0 if the file system has none
	Begun time.Time `json:"begun"`          // when weir was last started in the directory
}

const whatIdentity = "weir: this file notes its own inode and time of birth, so that a copy of the directory is told from the directory"

// Suspicion is a sign that a store was restored.
type Suspicion struct {
	What string    // a sentence for an operator, without the full stop
	Seen time.Time // when the store was last known to be the original; zero if unknown
	// Strange says that the note is about another store. An order in this store then does not settle the suspicion.
	Strange bool
}

// Settled reports whether an order already covers the suspicion. That happens if another replica found it first, or if
// this replica died after it gave the order.
func (s *Suspicion) Settled(o *Order) bool {
	return o != nil && !s.Strange && !s.Seen.IsZero() && o.At.After(s.Seen)
}

// ExamineDirectory checks whether a data directory is the one in which weir was last started. It returns a Suspicion if
// it is another one. It returns nil if it is the same one, if the directory is new, or if ExamineDirectory cannot tell.
// untold then says why it cannot tell.
func ExamineDirectory(dir string) (found *Suspicion, untold string, err error) {
	path := filepath.Join(dir, identityFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, unlasting(dir), nil
	} else if err != nil {
		return nil, "", fmt.Errorf("data directory %s: %w", dir, err)
	}
	var noted identity
	if err := json.Unmarshal(data, &noted); err != nil || noted.Inode == 0 {
		return &Suspicion{What: fmt.Sprintf("%s, by which weir knows its data directory, is damaged", path)}, "", nil
	}
	if untold := unlasting(dir); untold != "" {
		return nil, untold, nil
	}
	is, err := identify(path)
	if err != nil {
		return nil, "", fmt.Errorf("data directory %s: %w", dir, err)
	}
	if is.Inode == noted.Inode && (is.Born == noted.Born || is.Born == 0 || noted.Born == 0) {
		return nil, "", nil
	}
	return &Suspicion{
		What: fmt.Sprintf("the data directory %s is a copy of the one in which weir was last started, at %s", dir, noted.Begun.UTC().Format(time.RFC3339)),
		Seen: noted.Begun,
	}, "", nil
}

// MarkDirectory records that weir was last started in this data directory. The mark is on disk when MarkDirectory
// returns.
func MarkDirectory(dir string, now time.Time) error {
	err := replaceFile(filepath.Join(dir, identityFile), func(f *os.File) ([]byte, error) {
		is, err := identify(f.Name())
		if err != nil {
			return nil, err
		}
		is.What, is.Begun = whatIdentity, now.UTC()
		return json.Marshal(is)
	})
	if err != nil {
		return fmt.Errorf("data directory %s: %w", dir, err)
	}
	return nil
}

// replaceFile replaces a file atomically. write receives the new, empty file and returns the content for it. The old
// file stays until the new one is on disk, so the new file has another inode.
func replaceFile(path string, write func(f *os.File) ([]byte, error)) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	data, err := write(f)
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil //nolint:nilerr // the file is in its place; only a power cut could undo it
	}
	return errors.Join(dir.Sync(), dir.Close())
}
