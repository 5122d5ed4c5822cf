package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"weir/cmd/weir/internal/cli"
)

// Thresholds for a data directory.
const (
	leastFree = 1 << 30 // bytes
	slowSync  = 20 * time.Millisecond
	syncTries = 5
)

// unfitFileSystem returns the name of a type of file system on which the data must not be: it keeps nothing, or does
// not sync, lock or rename like a local disk. unfitFileSystem returns "" for any other type.
func unfitFileSystem(kind int64) string {
	switch kind {
	case 0x6969:
		return "NFS"
	case 0xff534d42, 0xfe534d42, 0x517b:
		return "SMB"
	case 0x65735546:
		return "FUSE"
	case 0x01021994:
		return "memory (tmpfs)"
	}
	return ""
}

// dataDirectory examines the disk of the embedded server, if its data directory is on this machine.
func (e *examination) dataDirectory() {
	if !e.Settings.Embedded() {
		return
	}
	dir := e.Settings.DataDir
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.watch("run weir doctor where weir runs, with its WEIR_DATA_DIR", "there is no data directory %s here: disk and syncs were not checked", dir)
		return
	case err != nil:
		e.bad("let the user that runs weir read and write it", "the data directory %s cannot be read: %v", dir, err)
		return
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		e.watch("chmod 700 "+dir, "other users of this machine may read the data directory %s (mode %o), with jobs, results and letters", dir, mode)
	}
	if number, free, known := diskOf(dir); known {
		if kind := unfitFileSystem(number); kind != "" {
			e.bad("put WEIR_DATA_DIR on a local disk", "the data directory %s is on %s: accepted jobs may be gone after a power cut", dir, kind)
		}
		if free < leastFree {
			e.bad("make room, or move WEIR_DATA_DIR to a larger disk", "%d MiB are free on the disk of %s: the store is full before its limit", free>>20, dir)
		} else {
			e.fine("%d GiB are free on the disk of %s", free>>30, dir)
		}
	}
	e.syncs(dir)
}

// syncs measures how long it takes until a small write is on disk. With WEIR_DURABILITY=always every group of jobs
// waits for one sync.
func (e *examination) syncs(dir string) {
	file, err := os.CreateTemp(dir, "doctor-*.tmp")
	if err != nil {
		e.watch("run weir doctor as the user that runs weir", "nothing can be written into %s: %v", dir, err)
		return
	}
	defer func() { _, _ = file.Close(), os.Remove(file.Name()) }()
	var took []time.Duration
	for range syncTries {
		begun := time.Now()
		_, err := file.Write(make([]byte, 4<<10))
		if err == nil {
			err = file.Sync()
		}
		if err != nil {
			e.bad("look at the disk, and at the kernel's log", "a write into %s is not synced: %v", dir, err)
			return
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	if median := took[syncTries/2]; median > slowSync {
		e.watch("use a disk whose syncs are faster (an SSD with a power-loss protected cache)", "a write takes %s to be on disk: receipts wait for that", cli.Brief(median))
	} else {
		e.fine("a write takes %s to be on disk", cli.Brief(median))
	}
}

// Parameters of the timer measurement.
const (
	timerTries = 200
	timerSleep = 2 * time.Millisecond
)

// timers compares the lateness of this machine's timers with the jitter of each API.
func (e *examination) timers(ctx context.Context) {
	if e.Config == nil || len(e.Config.APIs) == 0 {
		return
	}
	var late []time.Duration
	for range timerTries {
		begun := time.Now()
		select {
		case <-time.After(timerSleep):
			late = append(late, time.Since(begun)-timerSleep)
		case <-ctx.Done():
			return
		}
	}
	slices.Sort(late)
	usual := late[timerTries*99/100]
	small := false
	for i := range e.Config.APIs {
		if a := &e.Config.APIs[i]; a.Rules.Jitter < usual {
			small = true
			e.watch("give the machine fewer other things to do, or raise apis."+a.Name+".jitter to "+(2*usual).Round(time.Millisecond).String(),
				"this machine wakes a process %s late, one time in a hundred, and api %s allows for %s: slots will be missed", cli.Brief(usual), a.Name, a.Rules.Jitter)
		}
	}
	if !small {
		e.fine("this machine wakes a process no more than %s late, 99 times in a hundred", cli.Brief(usual))
	}
}
