package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Disk syncs the messages that the server has acknowledged, if the server writes without syncing. One fdatasync serves
// all callers that wait for it. Disk is safe for concurrent use.
//
// The server writes a message into its stream's newest block file before it acknowledges the message. A flush begins
// only after the call of Flush, so every message that was acknowledged before the call is already in the file. Blocks
// are files with rising numbers. So a flush syncs the block that was the newest at the last flush, and all later
// blocks. If a file was created, the flush also syncs their directory. If a block has lost half its messages, the
// server rewrites it and renames the new file into place without a sync: barrier.go says what a file system must
// promise for that.
type Disk struct {
	streams string                  // directory of all streams
	sync    func(path string) error // syncs a file or directory
	broke   chan error              // receives the first failure, once

	mu     sync.Mutex // guards files and failed
	files  map[string]*streamFiles
	failed error
}

// streamFiles are the files of one stream.
type streamFiles struct {
	dir     string
	waiting *flush // the next flush, which has not begun; nil if no caller waits
	running bool
	writers int           // publishers whose messages are not acknowledged yet
	written chan struct{} // closed when writers becomes 0; nil: no flush waits for that

	// Only the running flush uses the following fields.
	of     os.FileInfo // the directory of blocks at the last flush; nil: there was no directory
	newest uint64      // the newest block at the last flush; 0: there was no block
	listed time.Time   // the directory's time of change when a flush last listed it; zero: the next flush lists it
}

// flush is one sync of a stream, for all callers that called Flush before the sync began.
type flush struct {
	done chan struct{} // closed when the flush has ended
	err  error
}

// streamsDir returns the directory in which a server keeps its streams. store is the server's data directory.
func streamsDir(store string) string {
	return filepath.Join(store, server.JetStreamStoreDir, "$G", "streams")
}

func newDisk(store string) *Disk {
	return &Disk{streams: streamsDir(store), sync: syncPath, broke: make(chan error, 1), files: map[string]*streamFiles{}}
}

// ErrDisk reports that a sync failed. Data of that sync may be lost although it can still be read, so from then on weir
// must answer nothing.
var ErrDisk = errors.New("the disk fails writes")

// Flush blocks until everything that a stream had acknowledged before the call is on disk. If it fails with ErrDisk,
// every later call fails too. If it fails with ctx's error, the data may or may not be on disk.
func (d *Disk) Flush(ctx context.Context, stream string) error {
	d.mu.Lock()
	if d.failed != nil {
		d.mu.Unlock()
		return d.failed
	}
	files := d.filesLocked(stream)
	if files.waiting == nil {
		files.waiting = &flush{done: make(chan struct{})}
	}
	mine := files.waiting
	if !files.running {
		files.running = true
		go d.run(stream, files)
	}
	d.mu.Unlock()
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return fmt.Errorf("wait for the disk: %w", context.Cause(ctx))
	}
}

// Writing implements stream.Disk.
func (d *Disk) Writing(stream string) (written func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	files := d.filesLocked(stream)
	files.writers++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if files.writers--; files.writers == 0 && files.written != nil {
			close(files.written)
			files.written = nil
		}
	}
}

// A flush takes 0.2 ms on a good disk and 10 ms on a bad one, and a caller that comes during a flush waits for the next
// one. So a flush first waits for a moment, in case more messages are being written. A job that is accepted, read, and
// has its intent stored then needs one flush instead of two.
const (
	linger    = 50 * time.Microsecond  // the longest wait for a first writer
	mostLooks = 1000                   // the most checks for a first writer
	gather    = 300 * time.Microsecond // the longest wait for all writers to finish; a timer of the Go runtime may take a millisecond
)

// gather waits for a first writer, for linger at most. Then it waits until no writer writes to the stream, for gather
// at most.
func (d *Disk) gather(files *streamFiles) {
	begin := time.Now()
	for look := 0; look < mostLooks && !d.isWritten(files) && time.Since(begin) < linger; look++ {
		runtime.Gosched() // a timer could take twenty times as long
	}
	d.mu.Lock()
	if files.writers == 0 {
		d.mu.Unlock()
		return
	}
	if files.written == nil {
		files.written = make(chan struct{})
	}
	written := files.written
	d.mu.Unlock()
	enough := time.NewTimer(gather)
	defer enough.Stop()
	select {
	case <-written:
	case <-enough.C:
	}
}

func (d *Disk) isWritten(files *streamFiles) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return files.writers > 0
}

func (d *Disk) filesLocked(stream string) *streamFiles {
	files := d.files[stream]
	if files == nil {
		files = &streamFiles{dir: filepath.Join(d.streams, stream)}
		d.files[stream] = files
	}
	return files
}

// run flushes a stream as long as callers wait.
func (d *Disk) run(stream string, files *streamFiles) {
	for d.mustFlush(files) {
		d.gather(files)
		d.mu.Lock()
		now := files.waiting
		files.waiting = nil
		failed := d.failed
		d.mu.Unlock()
		if failed == nil {
			if err := files.flush(d.sync); err != nil {
				failed = d.broken(fmt.Errorf("%w: stream %s: %w", ErrDisk, stream, err))
			}
		}
		now.err = failed
		close(now.done)
	}
}

// mustFlush reports whether callers wait. If it returns false, run must end.
func (d *Disk) mustFlush(files *streamFiles) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	files.running = files.waiting != nil
	return files.running
}

// broken stores the first failure and returns it from then on. A kernel may forget data that it could not write, so a
// repeated sync could wrongly report success.
func (d *Disk) broken(err error) error {
	d.mu.Lock()
	first := d.failed == nil
	if first {
		d.failed = err
	}
	err = d.failed
	d.mu.Unlock()
	if first {
		d.broke <- err
	}
	return err
}

// Broken returns a channel that receives the first failure, once. weir must end when it receives the failure.
func (d *Disk) Broken() <-chan error { return d.broke }

// coarse is longer than a tick of the kernel's clock. If a directory changes twice within one tick, its time of change
// may stay the same, so a directory that changed less than coarse ago must be listed again.
const coarse = 50 * time.Millisecond

// flush syncs the blocks that may have been written since the last flush. It does nothing if the stream was deleted.
func (f *streamFiles) flush(sync func(path string) error) error {
	msgs := filepath.Join(f.dir, "msgs")
	info, err := os.Stat(msgs)
	if errors.Is(err, os.ErrNotExist) {
		f.of = nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the stream's files: %w", err)
	}
	if f.of == nil || !os.SameFile(f.of, info) { // a purge, or a new stream of that name, makes a new directory
		f.newest, f.listed = 0, time.Time{}
	}
	changed := info.ModTime()
	if changed.Equal(f.listed) {
		err := sync(filepath.Join(msgs, blockName(f.newest)))
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	blocks, err := blocksFrom(msgs, f.newest)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, block := range blocks {
		// The server has deleted a missing block meanwhile, because all its messages were deleted: nothing of it must
		// be kept.
		if err := sync(filepath.Join(msgs, blockName(block))); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := f.syncNames(msgs, sync); err != nil {
		return err
	}
	f.of, f.listed = info, time.Time{}
	if len(blocks) > 0 {
		f.newest = blocks[len(blocks)-1]
		if time.Since(changed) > coarse {
			f.listed = changed
		}
	}
	return nil
}

// syncNames syncs the directory of the blocks. If that directory is new to this process, syncNames also syncs the
// stream's metadata and the directories above, which hold the stream's name.
func (f *streamFiles) syncNames(msgs string, sync func(path string) error) error {
	paths := []string{msgs}
	if f.of == nil || f.newest == 0 {
		paths = append(paths, filepath.Join(f.dir, "meta.inf"), filepath.Join(f.dir, "meta.sum"), f.dir, filepath.Dir(f.dir))
	}
	for _, path := range paths {
		if err := sync(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func blockName(number uint64) string { return strconv.FormatUint(number, 10) + ".blk" }

// blocksFrom returns the sorted numbers of a stream's blocks, without those below from.
func blocksFrom(msgs string, from uint64) (blocks []uint64, err error) {
	entries, err := os.ReadDir(msgs)
	if err != nil {
		return nil, fmt.Errorf("list the stream's files: %w", err)
	}
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), ".blk")
		if !ok {
			continue
		}
		if number, err := strconv.ParseUint(name, 10, 64); err == nil && number >= from {
			blocks = append(blocks, number)
		}
	}
	slices.Sort(blocks)
	return blocks, nil
}
