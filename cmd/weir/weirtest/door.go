package weirtest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
)

const DoorYAML = `
dead_letters: {max_bytes: 64MiB}
apis:
  credit:
    url: %[1]s
    methods: [POST, PUT]
    forward_headers: [X-Source, Content-Type]
    max_body: 100B
    bucket: {rate: 100/s, burst: 10, capacity: 3}
    limits:
      - {name: tokens, rate: 1000/s, burst: 10, cost: header:Weir-Cost}
  tenants:
    url: %[1]s
    key: {from: header:X-Tenant}
    bucket: {rate: 1/s, capacity: 100}
`

// OnDisk reports whether a text occurs in any file of the data directory.
func (r *Rig) OnDisk(text string) (found bool) {
	r.T.Helper()
	err := filepath.WalkDir(filepath.Join(r.Dir, "data"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || found {
			return nil // deleted meanwhile
		}
		data, _ := os.ReadFile(path)
		found = bytes.Contains(data, []byte(text))
		return nil
	})
	if err != nil {
		r.T.Fatal(err)
	}
	return found
}
