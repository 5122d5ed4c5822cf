package queue

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"weir/bucket/natstest"
	"weir/ingest/await"
)

// TestUnreadableEpoch: a server that cannot read an owner's epoch refuses its intents, which is not told as another owner's coming; whoever
// takes the partition over then has it.
func TestUnreadableEpoch(t *testing.T) {
	const instance = "the instance"
	dir := t.TempDir()
	ns := natstest.Start(t, dir, 0)
	_, port, err := net.SplitHostPort(ns.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	p := openTestPartition(t, ns)
	own := func() *Markers {
		m, err := p.Own(t.Context(), instance)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := await.Receive(t, "the end of the markers", ended); err != nil {
				t.Error(err)
			}
		})
		return m
	}
	intend := func(m *Markers) error {
		stored := make(chan error, 1)
		m.Intend([]Intent{{Seq: 1, Call: 1}}, func(_ uint64, err error) { stored <- err })
		return await.Receive(t, "an intent", stored)
	}
	first := own()
	second := own()
	if err := intend(first); !errors.Is(err, ErrFenced) || err.Error() != ErrFenced.Error() {
		t.Errorf("beside another owner: %v", err)
	}
	ns.Shutdown()
	ns.WaitForShutdown()
	spoil(t, dir, instance)
	natstest.Start(t, dir, number)
	if err := intend(second); !errors.Is(err, ErrFenced) || err.Error() == ErrFenced.Error() {
		t.Errorf("alone: %v", err)
	}
	if err := intend(own()); err != nil {
		t.Errorf("of the next owner: %v", err)
	}
}

// spoil turns over eight bytes of the last message in a store that has a text.
func spoil(t *testing.T, dir, text string) {
	t.Helper()
	blocks, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*", "msgs", "*.blk"))
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
