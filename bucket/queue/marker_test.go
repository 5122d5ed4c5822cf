package queue

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/bucket/stream"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
)

// TestUnreadableEpoch checks a server that cannot read an owner's epoch. It refuses the owner's intents. The owner does
// not assume another owner: it may store its epoch again, and the next owner takes over.
func TestUnreadableEpoch(t *testing.T) {
	const instance = "the instance"
	dir := t.TempDir()
	ns := natstest.Start(t, dir, 0)
	port := natstest.Port(t, ns)
	p := openTestPartition(t, ns)
	own := func() (m *Markers, intend func() error) {
		m, err := p.Own(t.Context(), instance)
		if err != nil {
			t.Fatal(err)
		}
		return m, runMarkers(t, m)
	}
	requireFence := func(m *Markers, want Fence) {
		t.Helper()
		if f, err := m.Fence(t.Context()); err != nil || f != want {
			t.Errorf("the fence is %v, want %v: %v", f, want, err)
		}
	}
	formerly, first := own()
	m, second := own()
	if err := first(); !errors.Is(err, ErrFenced) {
		t.Errorf("beside another owner: %v", err)
	}
	requireFence(formerly, FenceOther)
	requireFence(m, FenceOwn)
	ns.Shutdown()
	ns.WaitForShutdown()
	natstest.Spoil(t, dir, "WEIR_pay_0", instance)
	natstest.Start(t, dir, port)
	if err := second(); !errors.Is(err, ErrFenced) {
		t.Errorf("alone: %v", err)
	}
	requireFence(m, FenceGone)
	if err := m.Renew(t.Context(), "again"); err != nil {
		t.Fatal(err)
	}
	if err := second(); err != nil {
		t.Errorf("by the epoch that was stored again: %v", err)
	}
	_, third := own()
	if err := third(); err != nil {
		t.Errorf("of the next owner: %v", err)
	}
}

// runMarkers stores an owner's markers until the test ends, and returns a function that stores an intent.
func runMarkers(t *testing.T, m *Markers) (intend func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := await.Receive(t, "the end of the markers", ended); err != nil {
			t.Error(err)
		}
	})
	return func() error {
		return await.Result(t, "an intent", func() error {
			_, err := m.Intend(Intent{Seq: 1, Call: 1})
			return err
		})
	}
}

// TestMessageOfMostMarkers checks that the stream accepts a message with MostMarkers bytes of intents, and refuses a
// message that is longer than the stream allows.
func TestMessageOfMostMarkers(t *testing.T) {
	p := openTestPartition(t, natstest.Start(t, t.TempDir(), 0))
	m, err := p.Own(t.Context(), "the instance")
	if err != nil {
		t.Fatal(err)
	}
	runMarkers(t, m)
	for bytes, want := range map[int64]error{p.MostMarkers(): nil, p.MostMarkers() + markerHeaders: stream.ErrTooLarge} {
		i := Intent{Seq: 1, Call: 1, Epoch: m.Epoch()}
		data, err := json.Marshal([]Intent{i})
		if err != nil {
			t.Fatal(err)
		}
		i.Target = strings.Repeat("t", int(bytes)-len(data))
		if _, err := m.Intend(i); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v, want %v", bytes, err, want)
		}
	}
}

// TestUnreadableEpochIsOfTheDead checks a new owner of a partition whose last epoch the server cannot read. The new
// owner assumes that the former owner died, and fences it. If the stream has no room for another epoch, the error says
// what to do.
func TestUnreadableEpochIsOfTheDead(t *testing.T) {
	const instance = "the instance"
	dir := t.TempDir()
	open := func(ns *server.Server, capacity int64) *Partition {
		t.Helper()
		js := natstest.Connect(t, ns)
		q, err := OpenQueue(t.Context(), Options{Conn: js.Conn(), JetStream: js, Settings: Settings{
			StreamSettings: StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "pay", Partitions: 1, Capacity: capacity, MaxBody: 1 << 10,
		}})
		if err != nil {
			t.Fatal(err)
		}
		return q.partitions[0]
	}
	own := func(p *Partition) *Markers {
		t.Helper()
		m, err := p.Own(t.Context(), instance)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	ns := natstest.Start(t, dir, 0)
	p := open(ns, 1)
	if m := own(p); m.AfterDeath() {
		t.Error("before the first owner another one died")
	}
	p.publishJobs(t, 0, 3)
	ns.Shutdown()
	ns.WaitForShutdown()
	natstest.Spoil(t, dir, "WEIR_pay_0", instance)
	ns = natstest.Start(t, dir, 0)
	if _, err := open(ns, 1).Own(t.Context(), instance); !errors.Is(err, errNoRoom) || !strings.Contains(err.Error(), "a capacity of 2 for any key of api pay") {
		t.Errorf("without room: %v", err)
	}
	p = open(ns, 2)
	second := own(p)
	if !second.Unreadable() || !second.AfterDeath() || second.Held() != 0 {
		t.Errorf("the owner before is known: %+v", second)
	}
	if third := own(p); third.Unreadable() || !third.AfterDeath() {
		t.Errorf("the second owner is not known: %+v", third)
	}
	if err := runMarkers(t, second)(); !errors.Is(err, ErrFenced) {
		t.Errorf("beside another owner: %v", err)
	}
}
