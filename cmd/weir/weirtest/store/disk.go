package store

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Disk is the data directory of a weir, with the files of the embedded server.
type Disk struct {
	T   *testing.T
	Dir string
}

// Blocks returns the files that hold the messages of the api pay's queue.
func (d Disk) Blocks() []string {
	d.T.Helper()
	found, err := filepath.Glob(filepath.Join(d.Dir, "jetstream", "*", "streams", "WEIR_pay_*", "msgs", "*.blk"))
	if err != nil || len(found) == 0 {
		d.T.Fatal("no block of the queue is found: ", err)
	}
	return found
}

// Flip inverts eight bytes of a job's body in the store's files.
func (d Disk) Flip(body string) {
	d.T.Helper()
	for _, file := range d.Blocks() {
		data, err := os.ReadFile(file)
		if err != nil {
			d.T.Fatal(err)
		}
		at := bytes.Index(data, []byte(body))
		if at < 0 {
			continue
		}
		for i := range 8 {
			data[at+i] ^= 0xff
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			d.T.Fatal(err)
		}
		return
	}
	d.T.Fatalf("%q is in no block", body)
}

// Holds reports whether a text occurs in any file of the data directory.
func (d Disk) Holds(text string) (found bool) {
	d.T.Helper()
	err := filepath.WalkDir(d.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || found {
			return nil // deleted meanwhile
		}
		data, _ := os.ReadFile(path)
		found = bytes.Contains(data, []byte(text))
		return nil
	})
	if err != nil {
		d.T.Fatal(err)
	}
	return found
}
