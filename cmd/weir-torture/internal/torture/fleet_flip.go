package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/plan"

	"github.com/nats-io/nats.go/jetstream"
)

// healsWithin bounds how long a node with flipped bytes may take to have every copy again by itself.
const healsWithin = 30 * time.Second

// flipNode ends a node, flips eight bytes of its store, and starts it again. If the bytes were a stream's, the node must
// lead that stream when it is current again, so that everything is read from its copy.
func (f storeFaults) flipNode(ctx context.Context, s plan.Strike, done *judge.Strike) (err error) {
	n := f.nodes[s.Target]
	if s.Part == plan.OfQueue { // with jobs in it; when they are called, the node's copy must have them
		if err := f.gather(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.command(ctx, "resume", plan.APIName)) }()
	}
	f.end(n, s.Orderly)
	flipped := time.Now()
	dir := filepath.Join(f.storeOf(n), "jetstream")
	file, err := flipPart(dir, s.Part, rand.New(rand.NewPCG(f.programs.o.Seed, s.Seed)))
	if err != nil {
		return fmt.Errorf("flip bytes: %w", err)
	}
	if file == "" {
		f.record.note("no byte was flipped: %s has no %s", n.name, s.Part)
	} else {
		f.record.talk("eight bytes of %s are flipped: %s", n.name, file)
	}
	stream.Sleep(ctx, s.Last)
	done.Target = n.name + ": " + file
	if err := f.startFlipped(ctx, n); err != nil {
		return err
	}
	if err := f.awaitCurrent(ctx); err != nil {
		return err
	}
	of := streamOf(file)
	if of == "" {
		return nil
	}
	if s.Part.OfMessages() {
		f.record.damaged(judge.Damage{Stream: of, At: flipped, Up: time.Now()})
	}
	whole, err := f.info(ctx, of) // usually from another node, which became the leader when this one ended
	if err != nil {
		return fmt.Errorf("%s after flipped bytes: %w", of, err)
	}
	f.lead(ctx, of, n)
	if s.Part == plan.OfKept {
		done.Unmended = f.readAll(ctx, whole, n)
	}
	return nil
}

// startFlipped starts a node whose store is damaged. If the node refuses its store, or a copy on it stays away, the node
// gets an empty store, as an operator would give it.
func (f storeFaults) startFlipped(ctx context.Context, n *node) error {
	err := f.startNode(ctx, n)
	switch {
	case errors.Is(err, errGone):
		f.record.note("%s refused its store, and got an empty one: %s", n.name, lastLine(n.process.Tail()))
	case err != nil:
		return err
	default:
		behind, err := f.awaitCopies(ctx, healsWithin)
		if behind == "" {
			return err
		}
		f.record.note("%s did not heal within %v, and got an empty store: %s has not all its copies", n.name, healsWithin, behind)
		f.end(n, true)
	}
	if err := os.Rename(f.storeOf(n), fmt.Sprintf("%s-refused-%d", f.storeOf(n), len(f.strikes))); err != nil {
		return fmt.Errorf("empty the store of %s: %w", n.name, err)
	}
	return f.startNode(ctx, n)
}

// flipPart flips eight bytes of one of the files of a part of the store in dir. It returns the file's path in dir, or ""
// if there is none.
func flipPart(dir string, p plan.Part, r *rand.Rand) (flipped string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, string(p)))
	if err != nil {
		return "", err
	}
	r.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	const flips, newest = 8, 4 << 10
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		if len(data) < flips {
			continue
		}
		from := 0
		if p == plan.OfQueue {
			from = max(0, len(data)-newest) // most jobs further back have ended
		}
		at := from + r.IntN(len(data)-flips-from+1)
		for i := range flips {
			data[at+i] ^= 0xff
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return "", err
		}
		return filepath.Rel(dir, file)
	}
	return "", nil
}

// streamOf returns the stream to which a file of a store belongs, or "" if it belongs to a Raft group.
func streamOf(file string) string {
	_, below, ok := strings.Cut(file, "/streams/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(below, "/")
	return name
}

// lead makes a node the leader of a stream. It notes if that does not succeed.
func (f storeFaults) lead(ctx context.Context, name string, n *node) {
	request, err := json.Marshal(map[string]any{"placement": map[string]string{"preferred": n.name}})
	if err != nil {
		panic("torture: " + err.Error()) // a map of strings
	}
	for limit := time.Now().Add(startWithin); time.Now().Before(limit); {
		if info, err := f.info(ctx, name); err == nil && info.Cluster != nil && info.Cluster.Leader == n.name {
			return
		}
		if _, err := f.nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+name, request, 2*time.Second); err != nil {
			f.record.talk("%s must lead %s: %v", n.name, name, err)
		}
		if !stream.Sleep(ctx, time.Second) {
			return
		}
	}
	f.record.note("%s did not come to lead %s", n.name, name)
}

// readAll reads a stream, of which nothing is deleted, from its leader n. whole is the stream as the leader before n had
// it. readAll returns what cannot be read, or "".
func (f storeFaults) readAll(ctx context.Context, whole *jetstream.StreamInfo, n *node) (unread string) {
	name, has := whole.Config.Name, whole.State
	read, unreadable := uint64(0), ""
	for seq := has.FirstSeq; seq <= has.LastSeq && ctx.Err() == nil; seq++ {
		switch m, err := stream.AskLeader(ctx, f.nc, name, fmt.Sprintf(`{"seq":%d}`, seq)); {
		case err == nil && m != nil:
			read++
		case unreadable == "":
			unreadable = fmt.Sprintf("%d (%v)", seq, err)
		}
	}
	f.record.talk("%d of %d messages of %s are read from %s", read, has.Msgs, name, n.name)
	if read >= has.Msgs {
		return ""
	}
	unread = fmt.Sprintf("%s on %s: %d of %d messages were read, not %s", name, n.name, read, has.Msgs, unreadable)
	f.record.note("after flipped bytes: %s", unread)
	return unread
}
