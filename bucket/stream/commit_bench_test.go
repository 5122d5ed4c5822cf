package stream

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// BenchmarkCommit measures in turn the ways to store a group of messages in one stream: each message by itself, with all
// of them under way at once; one atomic batch; and what a stream's grouping chooses. The stream has one copy or three,
// and the servers, which run in this process, sync every write or sync once in a while. A figure is the time for one
// message. TMPDIR must be on a real disk: a sync in memory costs nothing.
//
//	go test -run '^$' -bench Commit -benchtime 200x ./bucket/stream
func BenchmarkCommit(b *testing.B) {
	for _, copies := range []int{1, 3} {
		for _, synced := range []bool{false, true} {
			b.Run(fmt.Sprintf("copies=%d/synced=%t", copies, synced), func(b *testing.B) {
				js := natstest.Cluster(b, copies, synced)
				for _, size := range []int{2, 32, maxGroup} {
					b.Run(fmt.Sprint("group=", size), func(b *testing.B) { benchCommit(b, js, copies, size) })
				}
			})
		}
	}
}

// A grouping learns from groups of 2 to 16 messages before it is measured, as on a stream that was just made.
const (
	learnGroups = 45
	learnSizes  = 15
)

func benchCommit(b *testing.B, js jetstream.JetStream, copies, size int) {
	const name = "COMMIT"
	_, err := js.CreateStream(b.Context(), jetstream.StreamConfig{
		Name: name, Subjects: []string{"commit.>"}, Replicas: copies, AllowAtomicPublish: true, Duplicates: 2 * time.Minute,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := js.DeleteStream(context.Background(), name); err != nil {
			b.Error(err)
		}
	})
	single, chosen := exchangeOf(b, js.Conn()), exchangeOf(b, js.Conn())
	body, sent := bytes.Repeat([]byte("x"), 256), 0
	group := func(size int) []*nats.Msg {
		msgs := make([]*nats.Msg, size)
		for i := range msgs {
			sent++
			msgs[i] = &nats.Msg{
				Subject: fmt.Sprint("commit.", i), Header: nats.Header{ingest.HeaderMsgID: {fmt.Sprint("job.", sent)}}, Data: body,
			}
		}
		return msgs
	}
	for i := range learnGroups {
		allStored(b, chosen.Commit(b.Context(), group(leastGroup+i%learnSizes)), nil)
	}
	ways := []struct {
		name   string
		commit func([]*nats.Msg) ([]Answer, error)
		took   time.Duration
	}{
		{name: "single", commit: func(msgs []*nats.Msg) ([]Answer, error) { return single.Singly(b.Context(), msgs), nil }},
		{name: "batch", commit: func(msgs []*nats.Msg) ([]Answer, error) { return single.atomic(b.Context(), msgs) }},
		{name: "chosen", commit: func(msgs []*nats.Msg) ([]Answer, error) { return chosen.Commit(b.Context(), msgs), nil }},
	}
	for turn := 0; b.Loop(); turn++ {
		for i := range ways {
			way := &ways[(turn+i)%len(ways)]
			msgs := group(size)
			began := time.Now()
			answers, err := way.commit(msgs)
			way.took += time.Since(began)
			allStored(b, answers, err)
		}
	}
	each := float64(b.N * size)
	for _, way := range ways {
		b.ReportMetric(float64(way.took.Nanoseconds())/1000/each, way.name+"-us/msg")
	}
	b.ReportMetric(float64(ways[0].took)/float64(ways[1].took), "single/batch")
	b.ReportMetric(0, "ns/op")
}

func exchangeOf(b *testing.B, nc *nats.Conn) *Exchange {
	b.Helper()
	x, err := NewExchange(nc, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := x.Close(); err != nil {
			b.Error(err)
		}
	})
	return x
}

// allStored fails if a message was not stored.
func allStored(b *testing.B, answers []Answer, err error) {
	b.Helper()
	for _, a := range answers {
		if err == nil {
			err = a.Err
		}
	}
	if err != nil {
		b.Fatal(err)
	}
}
