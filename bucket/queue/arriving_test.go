package queue

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/ingest/await"
)

// TestLargeBodiesDoNotOverwhelmTheServer checks many partitions of large bodies that are read at once. The bytes on
// their way must stay below 64 MiB: by default a server disconnects a client that is behind by that much.
func TestLargeBodiesDoNotOverwhelmTheServer(t *testing.T) {
	const partitions, body, allowed = 24, 4 << 20, 64 << 20
	ns := natstest.StartWith(t, 8<<20)
	js := natstest.Connect(t, ns)
	q, err := OpenQueue(t.Context(), Options{Conn: js.Conn(), JetStream: js, Settings: Settings{
		StreamSettings: StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "pay", Partitions: partitions, Capacity: 1000, MaxBody: body,
	}})
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, body)
	for n := range partitions {
		if _, err := js.Publish(t.Context(), queueSubject("pay", n, kindJob, "k"), data); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	var found, bare atomic.Int64
	for _, p := range q.partitions {
		if _, err := p.Own(t.Context(), "test"); err != nil {
			t.Fatal(err)
		}
		readers.Go(func() {
			_ = p.Read(ctx, ReadOptions{
				Mark: func(Entry) {}, MarkersLoaded: func() {}, CaughtUp: func() {}, Damaged: func() {}, Stalled: func(error) {}, Bodies: func() bool { return true },
				Take: func(e Entry) {
					if e.Bare {
						bare.Add(1)
					}
					found.Add(1)
				},
			})
		})
	}
	await.Until(t, "all jobs", func() bool { return found.Load() == partitions })
	var atOnce int64
	for n := range partitions { // consumers that are sent bodies, and how much each may be sent ahead
		names, bodies := 0, false // the reader may have given an earlier consumer up
		s, err := js.Stream(t.Context(), StreamName("pay", n))
		if err != nil {
			t.Fatal(err)
		}
		consumers := s.ListConsumers(t.Context())
		for info := range consumers.Info() {
			names++
			bodies = bodies || !info.Config.HeadersOnly
		}
		if bodies {
			atOnce += q.largest.Load()
		}
		if consumers.Err() != nil || names == 0 {
			t.Fatal(fmt.Sprint(names, " readers, "), consumers.Err())
		}
	}
	if atOnce > allowed/2 {
		t.Errorf("the readers may be sent %d MiB at once, the server allows a client %d", atOnce>>20, allowed>>20)
	}
	if bare.Load() == 0 || bare.Load() == partitions {
		t.Errorf("%d of %d messages came without bodies", bare.Load(), partitions)
	}
	var loads sync.WaitGroup
	for _, p := range q.partitions {
		loads.Go(func() {
			if e, err := p.Get(await.Context(t, "a message"), 1); err != nil || len(e.Data) != body {
				t.Errorf("%d bytes: %v", len(e.Data), err)
			}
			if held := q.holdings.loading.held(); held > allowed/2 {
				t.Errorf("%d MiB are loaded at once", held>>20)
			}
		})
	}
	await.Return(t, "the messages", loads.Wait)
	if n := ns.NumSlowConsumers(); n > 0 {
		t.Errorf("the server cut %d slow consumers off", n)
	}
	cancel()
	await.Return(t, "the end of the readers", readers.Wait)
}
