package torture

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/disk"
	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/plan"
)

// rewritesWithin bounds the wait for a block that a node rewrites.
const rewritesWithin = 90 * time.Second

// makeDrives gives each node a drive, if the plan cuts their power. If this machine allows no drives, a note says so and
// the nodes are killed instead.
func (f *fleet) makeDrives() {
	if f.programs.o.PowerLosses == 0 {
		return
	}
	for _, n := range f.nodes {
		d, err := disk.NewDrive(f.homeOf(n)+".drive", f.homeOf(n))
		if err != nil {
			f.record.note("no power cut, all nodes are killed instead: %v", err)
			return
		}
		n.drive = d
		f.teardown.onEnd(d.Close)
	}
}

// cutPower cuts the power of all nodes at the same moment, while a node rewrites a block of a queue. A node rewrites a
// block when most of its jobs are deleted. So large jobs of one partition are submitted while the api is paused, and
// called when it is resumed.
func (f storeFaults) cutPower(ctx context.Context, s plan.Strike, done *judge.Strike) error {
	done.Target = "all"
	partition := int(s.Seed % uint64(f.programs.o.Partitions()))
	if err := f.gather(ctx); err != nil {
		return err
	}
	f.producing.fill(ctx, f.programs.o.LargeKeysOf(partition))
	blocks := rewrites{files: map[string]os.FileInfo{}}
	for _, n := range f.nodes {
		blocks.dirs = append(blocks.dirs, filepath.Join(f.storeOf(n), "jetstream", "$G", "streams", queue.StreamName(plan.APIName, partition), "msgs"))
	}
	if err := f.command(ctx, "resume", plan.APIName); err != nil {
		return err
	}
	done.Rewritten = blocks.await(ctx)
	if done.Rewritten != "" {
		f.record.talk("%s", done.Rewritten)
	} else {
		f.record.note("no block was rewritten within %v of a power cut", rewritesWithin)
	}
	stream.Sleep(ctx, s.Late)
	var killing sync.WaitGroup
	for _, n := range f.nodes {
		killing.Go(func() { f.end(n, false) })
	}
	killing.Wait() // no node writes any more; what it had not synced is in the kernel's memory
	if slices.ContainsFunc(f.nodes, func(n *node) bool { return n.drive == nil }) {
		done.Kind = plan.KillNodes
	} else {
		for _, n := range f.nodes {
			if err := n.drive.Cut(); err != nil {
				return err
			}
		}
	}
	stream.Sleep(ctx, s.Last)
	return f.startNodes(ctx)
}

// rewrites finds the blocks that servers rewrite.
type rewrites struct {
	dirs  []string               // of the blocks of a stream, on each node
	files map[string]os.FileInfo // the blocks as they were at the last look
}

// await waits until a block is rewritten, and describes it. It returns "" after rewritesWithin.
func (r *rewrites) await(ctx context.Context) (found string) {
	for limit := time.Now().Add(rewritesWithin); time.Now().Before(limit); {
		for _, dir := range r.dirs {
			if found = r.look(dir); found != "" {
				return found
			}
		}
		if !stream.Sleep(ctx, time.Millisecond) {
			break
		}
	}
	return ""
}

// look describes a block in a directory that is being rewritten, or was since the last look. It returns "" if there is
// none. A server writes the new block beside the old one and renames it.
func (r *rewrites) look(dir string) string {
	files, err := os.ReadDir(dir)
	if err != nil {
		return "" // the stream has no directory yet
	}
	for _, file := range files {
		path := filepath.Join(dir, file.Name())
		switch filepath.Ext(path) {
		case ".new":
			return path + " is being written"
		case ".blk":
			info, err := file.Info()
			if err != nil {
				continue // the server has removed the block
			}
			before := r.files[path]
			r.files[path] = info
			if before != nil && !os.SameFile(before, info) {
				return fmt.Sprintf("%s was replaced: %d bytes before, %d now", path, before.Size(), info.Size())
			}
		}
	}
	return ""
}
