package soak

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
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
	filler := filepath.Join(dir, "filler")
	outlive(t, dir, func() { fillDisk(t, filler) }, func() {
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	})
}

// outlive breaks the disk of a weir that has jobs, which must end, and repairs it. The next start continues, and what
// was accepted is called once. It returns the jobs that were accepted after the disk broke, and the exit code of the
// weir.
func outlive(t *testing.T, dir string, fail, mend func()) (taken []string, code int) {
	t.Helper()
	r := weirtest.NewKillRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: 1}, KeepBody: 64},
		"apis:\n  pay:\n    url: %s\n    bucket: {rate: 20/s, capacity: 1000}\n", "WEIR_DATA_DIR="+filepath.Join(dir, "data"), "WEIR_SHUTDOWN_TIMEOUT=2s")
	for i := range 40 {
		r.Publish(t.Context(), "weir.jobs.pay.k", fmt.Sprint("early-", i), fmt.Append(nil, "early-", i))
	}
	fail()
	ctx := await.Context(t, "the end of a weir whose disk is broken")
	for i := 0; ; i++ {
		msg := fmt.Sprint("late-", i)
		answer, err := r.NC.Request("weir.jobs.pay.k", []byte(msg), 100*time.Millisecond)
		if err == nil && !strings.Contains(string(answer.Data), `"error"`) {
			taken = append(taken, msg)
		}
		select {
		case <-r.Proc.Exited:
		case <-ctx.Done():
			t.Fatalf("weir runs on, on a disk that is broken: %v", err)
		default:
			continue
		}
		break
	}
	code = r.Proc.Cmd.ProcessState.ExitCode()
	mend()
	r.Start()
	r.AwaitEmpty()
	calls := map[string]int{}
	for _, a := range r.API.All() {
		calls[string(a.Body)]++
	}
	ended := r.Outcomes()
	for i := range 40 {
		id := fmt.Sprint("early-", i)
		if calls[id] > 1 || len(ended[id]) != 1 {
			t.Errorf("%s was called %d times and ended as %v", id, calls[id], ended[id])
		}
	}
	return taken, code
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

// faultyDisk mounts an ext4 file system. fail makes the kernel treat it as damaged and therefore read-only, as disks
// that begin to fail are. mend makes it writable again.
func faultyDisk(t *testing.T) (dir string, fail, mend func()) {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "disk.img"), t.TempDir()
	run := func(name string, args ...string) (string, error) {
		out, err := exec.CommandContext(await.Context(t, name), name, args...).CombinedOutput()
		return string(out), err
	}
	weirtest.WriteFile(t, image, "")
	if err := os.Truncate(image, 512<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := run("mkfs.ext4", "-q", image); err != nil {
		t.Skipf("no disk can be made: %v %s", err, out)
	}
	if out, err := run("mount", "-o", "loop,errors=remount-ro", image, dir); err != nil {
		t.Skipf("no disk can be mounted: %v %s", err, out)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	out, err := run("findmnt", "-n", "-o", "SOURCE", dir)
	if err != nil {
		t.Skipf("nothing tells the disk's device: %v", err)
	}
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(strings.TrimSpace(out)), "trigger_fs_error")
	if _, err := os.Stat(trigger); err != nil {
		t.Skipf("no error can be made: %v", err)
	}
	fail = func() {
		t.Helper()
		if err := os.WriteFile(trigger, []byte("weir's test"), 0o200); err != nil {
			t.Fatal(err)
		}
	}
	mend = func() {
		t.Helper()
		if out, err := run("umount", dir); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		_, _ = run("e2fsck", "-f", "-y", image) // its code says what it mended
		if out, err := run("mount", "-o", "loop", image, dir); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	return dir, fail, mend
}

// TestReadOnlyDisk: a disk that turns read-only makes weir end, and say why, before it makes a call that it could not
// record. On a writable disk the next start continues: accepted jobs are called, once, and the producers of the others
// were told so.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	dir, fail, mend := faultyDisk(t)
	taken, code := outlive(t, dir, fail, mend)
	if len(taken) > 0 {
		t.Errorf("%d jobs were taken on a disk that takes nothing: %v", len(taken), taken)
	}
	if code != 1 {
		t.Errorf("weir ended with %d", code)
	}
}
