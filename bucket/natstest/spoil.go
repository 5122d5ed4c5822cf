package natstest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Spoil flips eight bytes of the last message that contains text, in the store of a stream. No server may run on dir.
func Spoil(t *testing.T, dir, stream, text string) {
	t.Helper()
	blocks, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", stream, "msgs", "*.blk"))
	if err != nil || len(blocks) != 1 {
		t.Fatal(blocks, err)
	}
	data, err := os.ReadFile(blocks[0])
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(data, []byte(text))
	if at < 0 {
		t.Fatalf("%q is not in the store", text)
	}
	for i := range 8 {
		data[at+i] ^= 0xff
	}
	if err := os.WriteFile(blocks[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
}
