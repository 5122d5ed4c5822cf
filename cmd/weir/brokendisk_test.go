package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/ingest/await"
)

// TestFullDisk: a weir whose disk is full ends, since its server writes no more until it is started again, and says ready as long as it
// runs. When there is room the next start goes on: what was accepted is called, once.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=100m"); err != nil {
		t.Skipf("no small disk can be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	r := newKillRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: 1}, KeepBody: 64},
		"apis:\n  pay:\n    url: %s\n    bucket: {rate: 20/s, capacity: 1000}\n", "WEIR_DATA_DIR="+filepath.Join(dir, "data"), "WEIR_SHUTDOWN_TIMEOUT=2s")
	for i := range 40 {
		r.publish(t.Context(), "weir.jobs.pay.k", fmt.Sprint("early-", i), fmt.Append(nil, "early-", i))
	}
	filler := filepath.Join(dir, "filler")
	fillDisk(t, filler)
	ctx := await.Context(t, "the end of a weir whose disk is full")
	for i := 0; ; i++ {
		msg := fmt.Sprint("late-", i)
		_, err := r.nc.Request("weir.jobs.pay.k", []byte(msg), 100*time.Millisecond)
		select {
		case <-r.proc.exited:
		case <-ctx.Done():
			t.Fatalf("weir runs on, on a disk that is full: %v", err)
		default:
			continue
		}
		break
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.awaitEmpty()
	calls := map[string]int{}
	for _, a := range r.api.All() {
		calls[string(a.Body)]++
	}
	ended := r.outcomes()
	for i := range 40 {
		id := fmt.Sprint("early-", i)
		if calls[id] > 1 || len(ended[id]) != 1 {
			t.Errorf("%s was called %d times and ended as %v", id, calls[id], ended[id])
		}
	}
}

// fillDisk takes all the room there is.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(f, zeros{})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	_ = f.Close()
}

// zeros never ends.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) { return len(p), nil }
