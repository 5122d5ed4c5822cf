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

// Disk makes durable what the server has acknowledged, if the server writes without syncing: one fdatasync serves all
// callers that wait for it. It is safe for concurrent use.
//
// The server writes a message into its stream's newest block file before it acknowledges it. A Disk begins a flush only
// after the call, so whatever was acknowledged before is in the file. Blocks are files with rising numbers, so a flush
// syncs the blocks from the last flush's newest on, and their directory if a file was created. If a block has lost half
// its messages, the server rewrites it and renames it into place without a sync: barrier.go says what a file system
// must promise for that.
type Disk struct {
	streams string                  // directory of them
	sync    func(path string) error // of a file or directory
	broke   chan error              // receives the first failure

	mu     sync.Mutex // guards what follows
	files  map[string]*streamFiles
	failed error
}

// streamFiles are the files of one stream.
type streamFiles struct {
	dir     string
	waiting *flush // not begun yet; nil: none
	running bool
	writers int           // writers whose messages are on their way
	written chan struct{} // closed when there is none any more; nil: no flush waits for that

	// What follows belongs to the running flush.
	of     os.FileInfo // the blocks' directory as the last flush found it; nil: there was none
	newest uint64      // block that the last flush found; 0: none
	listed time.Time   // the change of the directory after which it was listed; zero: the next flush lists it
}

// flush is one flush for all callers that asked before it began.
type flush struct {
	done chan struct{} // closed when it has ended
	err  error
}

// streamsDir returns where a server keeps its streams.
func streamsDir(store string) string {
	return filepath.Join(store, server.JetStreamStoreDir, "$G", "streams")
}

func newDisk(store string) *Disk {
	return &Disk{streams: streamsDir(store), sync: syncPath, broke: make(chan error, 1), files: map[string]*streamFiles{}}
}

// ErrDisk reports that the disk did not take what was written. What was not synced then may be lost although it can be
// read: nothing may be answered any more.
var ErrDisk = errors.New("the disk fails writes")

// Flush returns when everything that a stream had acknowledged before the call is on disk. It fails with ErrDisk, and
// then every later call does too. Or it fails with ctx's error, and then it is unknown what is on disk.
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

// A flush takes 0.2 ms on a good disk and 10 ms on a bad one, and callers that come during a flush wait for the next.
// So a flush waits for a moment before it begins: then one flush, not two, stores a job that is accepted, read, and has
// its intent stored.
const (
	linger    = 50 * time.Microsecond  // for a writer to come, if there is none
	mostLooks = 1000                   // for a writer
	gather    = 300 * time.Microsecond // for all writers to finish; a timer of the Go runtime may take a millisecond
)

// gather waits until no writer writes to a stream, for a moment at most.
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

// run flushes as long as callers wait.
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

// mustFlush reports whether callers wait; otherwise run ends.
func (d *Disk) mustFlush(files *streamFiles) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	files.running = files.waiting != nil
	return files.running
}

// broken remembers the first failure. A kernel may forget what it could not write, and a repeated sync would then
// report success.
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

// Broken receives the first failure: weir must end then.
func (d *Disk) Broken() <-chan error { return d.broke }

// coarse is how long a directory's time of change may stand still although it changes: more than a tick of the kernel's
// clock.
const coarse = 50 * time.Millisecond

// flush syncs the blocks that may have been written since the last flush. For a deleted stream there is nothing to
// sync.
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
	if f.of == nil || !os.SameFile(f.of, info) { // a purge, or creating the stream anew, begins another directory
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
		// A missing block was emptied meanwhile: messages in none of the blocks need not be kept.
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

// syncNames syncs the directory of the blocks and, if that is new to this process, the directories above it that name
// the stream.
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

// blocksFrom returns the numbers of a stream's blocks from one on, rising.
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
