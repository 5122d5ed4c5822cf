package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/bucket/stream"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// platter is the state of a store after a power cut. Each file has the content of its last sync, and each directory has
// the names of its last sync. If a file was replaced, either the old file or the whole new one is there.
type platter struct {
	mu    sync.Mutex
	files map[string]written
	names map[string][]string // names in synced directories
}

type written struct {
	content []byte
	file    os.FileInfo
}

func (p *platter) sync(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		p.names[path] = nil
		for _, e := range entries {
			p.names[path] = append(p.names[path], e.Name())
		}
		return nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	p.files[path] = written{content, info}
	return nil
}

// cut writes the state after a power cut into another directory.
func (p *platter) cut(t *testing.T, from, to string, chance *rand.Rand) {
	t.Helper()
	p.mu.Lock()
	files, names := maps.Clone(p.files), maps.Clone(p.names)
	p.mu.Unlock()
	replaced := 0
	for dir, entries := range names {
		for _, name := range entries {
			path := filepath.Join(dir, name)
			left, ok := files[path]
			if !ok {
				continue // the file was never synced
			}
			if now, err := os.Stat(path); err == nil && !os.SameFile(now, left.file) && chance.IntN(2) == 0 {
				if content, err := os.ReadFile(path); err == nil {
					left.content = content
					replaced++
				}
			}
			rel, err := filepath.Rel(from, path)
			if err != nil {
				t.Fatal(err)
			}
			at := filepath.Join(to, rel)
			if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(at, left.content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("the cut left %d files, %d of them written anew", len(files), replaced)
}

// unsynced starts a server that never syncs by itself, and connects to it.
func unsynced(t *testing.T, dir string) (*Server, *nats.Conn, jetstream.JetStream) {
	t.Helper()
	s, err := Start(t.Context(), Options{Listen: "127.0.0.1:0", Dir: dir, MaxPayload: 1 << 20, MaxStore: 1 << 30, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	nc, err := nats.Connect(s.ClientURL(), nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return s, nc, js
}

// TestPowerCut checks that every message that a Writer reported as stored is there after a power cut at any moment. The
// test includes new blocks, blocks that the server rewrites when they have lost half their messages, purges that remove
// whole blocks, and a stream that is emptied.
func TestPowerCut(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			chance := rand.New(rand.NewPCG(seed, 1))
			dir, rest := t.TempDir(), t.TempDir()
			_, nc, js := unsynced(t, dir)
			left := &platter{files: map[string]written{}, names: map[string][]string{}}
			disk := newDisk(dir)
			disk.sync = left.sync
			synced := stream.OnDisk(js, disk)
			jobs, err := synced.CreateStream(t.Context(), jetstream.StreamConfig{Name: "JOBS", Subjects: []string{"jobs.>"}, MaxMsgsPerSubject: 100_000})
			if err != nil {
				t.Fatal(err)
			}
			entries, err := synced.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "entries", History: 1})
			if err != nil {
				t.Fatal(err)
			}
			w, err := stream.NewWriter(nc, disk, 10_000, 64<<20)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx) }()

			var mu sync.Mutex
			stored, gone := map[string]uint64{}, map[string]bool{}
			body := strings.Repeat("x", 3000)
			const all = 12_000
			for i := range all {
				id := fmt.Sprintf("id-%d-%d", seed, i)
				m := &nats.Msg{Subject: fmt.Sprintf("jobs.%d", i%5), Data: []byte(id + body[:chance.IntN(len(body))]), Header: nats.Header{"Nats-Msg-Id": {id}}}
				done := make(chan struct{})
				w.Begin(m, func(a stream.Answer) {
					defer close(done)
					if a.Err != nil {
						if ctx.Err() == nil {
							t.Errorf("%s: %v", id, a.Err)
						}
						return
					}
					mu.Lock()
					stored[id] = a.Seq
					mu.Unlock()
				})
				if i%16 == 15 {
					await.Receive(t, "the message to be stored", done)
				}
				if i%3 != 0 { // most messages are deleted, so that the server rewrites blocks
					mu.Lock()
					for id, seq := range stored {
						if !gone[id] && len(gone) < i*7/10 {
							gone[id] = true
							_ = nc.Publish("$JS.API.STREAM.MSG.DELETE.JOBS", fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, seq))
							break
						}
					}
					mu.Unlock()
				}
				if i == all/4 && seed == 1 {
					await.Receive(t, "the message to be stored", done)
					mu.Lock()
					for id := range stored {
						gone[id] = true
					}
					mu.Unlock()
					if err := jobs.Purge(t.Context()); err != nil { // the server makes a new directory for the blocks
						t.Fatal(err)
					}
				}
				if i%100 == 0 {
					if _, err := entries.Put(t.Context(), "last", []byte(id)); err != nil {
						t.Fatal(err)
					}
				}
				if i > all/3 && chance.IntN(all/3) == 0 {
					break
				}
			}
			mu.Lock()
			want, deleted := maps.Clone(stored), maps.Clone(gone)
			mu.Unlock()
			last, err := entries.Get(t.Context(), "last")
			if err != nil {
				t.Fatal(err)
			}
			left.cut(t, dir, rest, chance)
			stop()
			if err := await.Receive(t, "the writer to end", ended); err != nil {
				t.Error(err)
			}

			_, _, js = unsynced(t, rest)
			again, err := js.Stream(t.Context(), "JOBS")
			if err != nil {
				t.Fatalf("the stream is gone: %v", err)
			}
			looked := 0
			for id, seq := range want {
				if deleted[id] {
					continue
				}
				looked++
				m, err := again.GetMsg(t.Context(), seq)
				if err != nil || m.Header.Get("Nats-Msg-Id") != id || !strings.HasPrefix(string(m.Data), id) {
					t.Fatalf("%s was stored as %d, and is not there: %v", id, seq, err)
				}
			}
			if looked < 100 {
				t.Errorf("only %d messages were looked for", looked)
			}
			kv, err := js.KeyValue(t.Context(), "entries")
			if err != nil {
				t.Fatal(err)
			}
			if got, err := kv.Get(t.Context(), "last"); err != nil || got.Revision() < last.Revision() {
				t.Errorf("the entry is %v after the cut, %v: was %v", got, err, last)
			}
		})
	}
}

// TestDiskThatFails checks that after one failed sync no flush succeeds any more, even if a later sync would.
func TestDiskThatFails(t *testing.T) {
	dir := t.TempDir()
	_, nc, js := unsynced(t, dir)
	disk := newDisk(dir)
	broken := errors.New("input/output error")
	var fails atomic.Bool
	disk.sync = func(string) error {
		if fails.CompareAndSwap(true, false) {
			return broken
		}
		return nil
	}
	synced := stream.OnDisk(js, disk)
	if _, err := synced.CreateStream(t.Context(), jetstream.StreamConfig{Name: "JOBS", Subjects: []string{"jobs"}}); err != nil {
		t.Fatal(err)
	}
	w, err := stream.NewWriter(nc, disk, 10, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = w.Run(t.Context()) }()
	write := func(id string) error {
		done := make(chan error, 1)
		w.Begin(&nats.Msg{Subject: "jobs", Header: nats.Header{"Nats-Msg-Id": {id}}}, func(a stream.Answer) { done <- a.Err })
		return await.Receive(t, "an answer", done)
	}
	if err := write("good"); err != nil {
		t.Fatal(err)
	}
	fails.Store(true)
	for _, id := range []string{"bad", "after", "good"} {
		if err := write(id); !errors.Is(err, ErrDisk) || !errors.Is(err, broken) || !errors.Is(err, stream.ErrUnanswered) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := synced.Publish(t.Context(), "jobs", nil); !errors.Is(err, ErrDisk) {
		t.Errorf("a publish: %v", err)
	}
	if err := await.Receive(t, "the failure to be told", disk.Broken()); !errors.Is(err, broken) {
		t.Errorf("told is %v", err)
	}
}

// TestFlushServesAllThatWait checks that writes that arrive during a flush wait together for a single next flush.
func TestFlushServesAllThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		msgs := filepath.Join(streamsDir(dir), "JOBS", "msgs")
		if err := os.MkdirAll(msgs, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(msgs, blockName(1)), []byte("a message"), 0o600); err != nil {
			t.Fatal(err)
		}
		disk := newDisk(dir)
		flushes := 0
		on := make(chan struct{})
		disk.sync = func(path string) error {
			if filepath.Base(path) == "msgs" { // synced once in each flush that lists the directory
				flushes++
				await.Receive(t, "the flush to go on", on)
			}
			return nil
		}
		done := make(chan error, 20)
		ask := func() {
			err := disk.Flush(t.Context(), "JOBS")
			done <- err
		}
		go ask()
		synctest.Wait()
		for range 19 {
			go ask()
		}
		synctest.Wait()
		if len(done) > 0 || flushes != 1 {
			t.Errorf("%d were answered before the flush, %d flushes are under way", len(done), flushes)
		}
		close(on)
		for range 20 {
			if err := await.Receive(t, "a flush", done); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if flushes != 2 {
			t.Errorf("20 were served by %d flushes", flushes)
		}
		if err := disk.Flush(t.Context(), "NEVER"); err != nil {
			t.Errorf("of a stream that is not there: %v", err)
		}
	})
}

// TestFlushWaitsForWriters checks that a flush waits for writers that are writing already before it begins, and not
// long for a writer that never ends.
func TestFlushWaitsForWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newDisk(t.TempDir())
		done := make(chan error, 2)
		ask := func() { done <- disk.Flush(t.Context(), "JOBS") }
		one, other := disk.Writing("JOBS"), disk.Writing("JOBS")
		go ask()
		synctest.Wait()
		one()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("a flush ended during a write")
		}
		go ask() // the other writer has arrived, and asks for a flush too
		other()
		synctest.Wait()
		if len(done) != 2 {
			t.Errorf("%d of 2 were answered when all had written", len(done))
		}

		disk.Writing("JOBS") // this writer never ends
		go ask()
		began := time.Now()
		for range 3 {
			if err := await.Receive(t, "a flush", done); err != nil {
				t.Error(err)
			}
		}
		if waited := time.Since(began); waited > gather {
			t.Errorf("a flush waited for %v", waited)
		}
	})
}

// TestRenameIsBarrier checks renameIsBarrier with lists of mounts as Linux writes them.
func TestRenameIsBarrier(t *testing.T) {
	const mounts = `22 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 22 0:26 / /data/with\040blank rw - xfs /dev/sdb rw
31 22 0:27 / /fast rw - ext4 /dev/sdc rw,noauto_da_alloc
32 22 0:28 / /fast/inside rw - ext4 /dev/sdd rw,barrier=0
33 22 0:29 / /tmp rw - tmpfs tmpfs rw
34 33 0:30 / /tmp rw - ext4 /dev/sde rw
35 22 0:31 / /bare rw,nobarrier - ext4 /dev/sdf rw
`
	for path, want := range map[string]string{
		"/data": "ext4", "/data/with blank/x": "xfs", "/fastest": "ext4", "/fast": "ext4 rw,rw,noauto_da_alloc", "/fast/inside/x": "ext4 rw,rw,barrier=0",
		"/tmp/a": "ext4", "/bare": "ext4 rw,nobarrier,rw",
	} {
		kind, options, ok := mountOf(path, mounts)
		if wantKind, wantOptions, _ := strings.Cut(want, " "); !ok || kind != wantKind || wantOptions != "" && options != wantOptions {
			t.Errorf("%s is on %s %s %v, want %s", path, kind, options, ok, want)
		}
	}
	dir := t.TempDir()
	for options, want := range map[string]bool{
		"ext4 /dev/a rw": true, "ext4 /dev/a rw,noauto_da_alloc": false, "ext4 /dev/a rw,nobarrier": false, "ext4 /dev/a rw,barrier=0": false,
		"ext4 /dev/a rw,data=writeback": false, "ext4 /dev/a rw,data=journal": true,
		"xfs /dev/a rw": false, "overlay overlay rw": false, "ext3 /dev/a rw": false, "btrfs /dev/a rw": false, "tmpfs tmpfs rw": false,
	} {
		if yes, why := renameIsBarrier(dir, "22 1 254:0 / / rw - "+options+"\n"); yes != want || yes == (why != "") {
			t.Errorf("%s: %v %q", options, yes, why)
		}
	}
	if yes, _ := renameIsBarrier(dir, "nothing of the kind"); yes {
		t.Error("an unknown name is taken for a barrier")
	}
}

// TestProof checks that this version of the server writes a message to its file before it acknowledges the message, and
// that the proof leaves no files.
func TestProof(t *testing.T) {
	dir := t.TempDir()
	if err := prove(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// TestStreamMadeAnew checks flushes of a stream that has the name of a deleted one. Its blocks begin with number 1
// again, whatever number the deleted stream had reached.
func TestStreamMadeAnew(t *testing.T) {
	dir := t.TempDir()
	_, _, js := unsynced(t, dir)
	left := &platter{files: map[string]written{}, names: map[string][]string{}}
	disk := newDisk(dir)
	disk.sync = left.sync
	synced := stream.OnDisk(js, disk)
	write := func(text string) {
		t.Helper()
		if _, err := synced.Publish(t.Context(), "jobs", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 2 {
		var jobs jetstream.Stream
		// The server may still be removing the files of the deleted stream.
		await.Until(t, "the stream", func() (ok bool) {
			var err error
			jobs, err = synced.CreateStream(t.Context(), jetstream.StreamConfig{Name: "JOBS", Subjects: []string{"jobs"}})
			return err == nil
		})
		if round == 1 {
			write("made anew")
			break
		}
		for range 3 {
			write("before")
			if err := jobs.Purge(t.Context()); err != nil { // the next block gets the next number
				t.Fatal(err)
			}
		}
		write("before")
		if err := js.DeleteStream(t.Context(), "JOBS"); err != nil {
			t.Fatal(err)
		}
	}
	first := filepath.Join(streamsDir(dir), "JOBS", "msgs", blockName(1))
	if got := left.files[first]; !strings.Contains(string(got.content), "made anew") {
		t.Errorf("%s has %d bytes on disk, and not what was written", first, len(got.content))
	}
}
