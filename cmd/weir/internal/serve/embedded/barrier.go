package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A server that does not sync by itself rewrites a block that has lost half its messages, and renames the new file into
// place without a sync. After a power cut either the old file or the whole new file must be there. ext4 promises that
// with its option auto_da_alloc, which is on by default: it writes the data of the new file before the rename. With
// data=writeback ext4 does not wait for that write. XFS does not promise it; for other file systems it is unknown.

// renameIsBarrier reports whether the file system of a directory keeps a replaced file until the new file is on disk.
// mounts is the text of /proc/self/mountinfo. If yes is false, why is the reason.
func renameIsBarrier(dir, mounts string) (yes bool, why string) {
	real, err := filepath.Abs(dir)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return false, err.Error()
	}
	kind, options, ok := mountOf(real, mounts)
	switch {
	case !ok:
		return false, "the system does not say which file system it is"
	case kind != "ext4":
		return false, "of the file system " + kind + " it is not known to keep a file until another has replaced it"
	}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "noauto_da_alloc", "nobarrier", "barrier=0", "data=writeback":
			return false, "the file system is mounted with " + option
		}
	}
	return true, ""
}

// mountOf finds the mount of a path in mounts, the text of /proc/self/mountinfo. It returns the mount's kind of file
// system and its options.
func mountOf(path, mounts string) (kind, options string, ok bool) {
	longest := -1
	for line := range strings.Lines(mounts) {
		before, after, found := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !found || len(left) < 6 || len(right) < 3 {
			continue
		}
		at := unescape(left[4])
		if at != "/" && path != at && !strings.HasPrefix(path, at+"/") || len(at) < longest {
			continue
		}
		// Of several mounts at one place, the last one counts.
		longest, kind, options, ok = len(at), right[0], left[5]+","+right[2], true
	}
	return kind, options, ok
}

// unescape decodes the escaped characters in a path of /proc/self/mountinfo.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// proveWithin bounds how long prove may take.
const proveWithin = 20 * time.Second

// errUnproven reports that the server acknowledged a message before the message was in its file.
var errUnproven = errors.New("a message was acknowledged before it was in its file")

// prove starts a server in a temporary directory beside the store. It reads the server's file through another
// descriptor, and checks that acknowledged messages are in the file. A Disk depends on that, and another version of the
// server may write differently.
func prove(ctx context.Context, beside string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, proveWithin)
	defer cancel()
	dir, err := os.MkdirTemp(beside, ".proof-")
	if err != nil {
		return notWritable(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ns, err := server.NewServer(&server.Options{
		ServerName: "proof", DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir,
		JetStreamMaxStore: 16 << 20, JetStreamMaxMemory: 1 << 20, SyncInterval: time.Hour,
	})
	if err != nil {
		return fmt.Errorf("prove how the server writes: %w", err)
	}
	ns.Start()
	defer func() { ns.Shutdown(); ns.WaitForShutdown() }()
	if !ns.ReadyForConnections(proveWithin) {
		return errors.New("prove how the server writes: it did not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(ns), nats.Timeout(signIn))
	if err != nil {
		return fmt.Errorf("prove how the server writes: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("prove how the server writes: %w", err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "PROOF", Subjects: []string{"proof"}, Replicas: 1}); err != nil {
		return fmt.Errorf("prove how the server writes: %w", err)
	}
	const tries = 20
	for i := range tries {
		mark := fmt.Sprintf("proof-%d-%s", i, nats.NewInbox())
		if _, err := js.Publish(ctx, "proof", []byte(mark)); err != nil {
			return fmt.Errorf("prove how the server writes: %w", err)
		}
		block, err := os.ReadFile(filepath.Join(streamsDir(dir), "PROOF", "msgs", blockName(1)))
		if err != nil || !strings.Contains(string(block), mark) {
			return errors.Join(errUnproven, err)
		}
	}
	return nil
}
