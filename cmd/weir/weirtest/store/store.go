// Package store reads what a weir keeps: the store of its server (Store), the data directory (Disk), and the store of
// a worker that does not run (Offline), in which a test leaves what a dead worker may have left.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket/queue"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/ops/migrate"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Store reads what a weir keeps in NATS: jobs, results, letters, records of calls and events.
type Store struct {
	T   *testing.T
	JS  jetstream.JetStream
	API *fakeapi.API // that weir calls
	// Operators returns JetStream with the operators' credentials.
	Operators func() jetstream.JetStream
}

// Stored returns the messages of a stream under a subject, oldest first.
func (s Store) Stored(stream, subject string) []*jetstream.RawStreamMsg {
	s.T.Helper()
	in, err := s.JS.Stream(s.T.Context(), stream)
	if err != nil {
		s.T.Fatal(err)
	}
	var msgs []*jetstream.RawStreamMsg
	for seq := uint64(1); ; {
		msg, err := in.GetMsg(s.T.Context(), seq, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return msgs
		} else if err != nil {
			s.T.Fatal(err)
		}
		msgs, seq = append(msgs, msg), msg.Sequence+1
	}
}

// Messages returns how many messages a stream holds.
func (s Store) Messages(stream string) int {
	s.T.Helper()
	in, err := s.JS.Stream(s.T.Context(), stream)
	if err != nil {
		s.T.Fatal(err)
	}
	return int(in.CachedInfo().State.Msgs)
}

// Waiting returns how many jobs an api's queue holds.
func (s Store) Waiting(api string) int {
	s.T.Helper()
	n := 0
	for p := range 4 {
		in, err := s.JS.Stream(s.T.Context(), fmt.Sprintf("WEIR_%s_%d", api, p))
		if err != nil {
			s.T.Fatal(err)
		}
		info, err := in.Info(s.T.Context(), jetstream.WithSubjectFilter("weir.o.>"))
		if err != nil {
			s.T.Fatal(err)
		}
		n += int(info.State.Msgs) // both counts come from one answer: a new owner's mark is in both or in neither
		for _, m := range info.State.Subjects {
			n -= int(m)
		}
	}
	return n
}

// Depth returns how many jobs of a key are unfinished.
func (s Store) Depth(api, key string) int {
	n := 0
	for p := range 4 {
		n += len(s.Stored(queue.StreamName(api, p), QueueName(api, p, "j", key)))
	}
	return n
}

func QueueName(api string, p int, kind, token string) string {
	return fmt.Sprintf("weir.q.%s.%d.%s.%s", api, p, kind, token)
}

func (s Store) Streams() []*jetstream.StreamInfo {
	s.T.Helper()
	all, err := migrate.Streams(s.T.Context(), s.JS)
	if err != nil {
		s.T.Fatal(err)
	}
	return all
}

// Record stores a call in the ledger.
func (s Store) Record(c ledger.Record) {
	s.T.Helper()
	data, err := json.Marshal(c)
	if err != nil {
		s.T.Fatal(err)
	}
	if _, err := s.Operators().PublishMsg(s.T.Context(), &nats.Msg{Subject: c.Subject(), Data: data}); err != nil {
		s.T.Fatal(err)
	}
}

// ReadAll reads the headers of all letters over NATS, as any client would.
func (s Store) ReadAll(letters int) {
	t := s.T
	t.Helper()
	ctx := await.Context(t, "a bare read")
	c, err := s.Operators().OrderedConsumer(ctx, deadletter.Stream, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	msgs, err := c.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer msgs.Stop()
	for range letters {
		if _, err := msgs.Next(jetstream.NextContext(ctx)); err != nil {
			t.Fatal(err)
		}
	}
}

// RecordsOf returns the ledger, in the order in which the calls started.
func RecordsOf(t *testing.T, js jetstream.JetStream) []ledger.Record {
	t.Helper()
	s, err := js.Stream(t.Context(), ledger.CallsStream)
	if err != nil {
		t.Fatal(err)
	}
	var records []ledger.Record
	for seq := max(1, s.CachedInfo().State.FirstSeq); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		var c ledger.Record
		if err := json.Unmarshal(m.Data, &c); err != nil {
			t.Fatal(err)
		}
		records = append(records, c)
	}
	slices.SortFunc(records, func(a, b ledger.Record) int { return a.Started.Compare(b.Started) })
	return records
}

// seen describes the state of weir after a wait that timed out: the api's calls and the contents of the streams.
func (s Store) seen() string {
	var text strings.Builder
	if s.API != nil {
		sum := s.API.Totals()
		fmt.Fprintf(&text, "%d calls arrived, %d have ended", sum.Arrivals, sum.Ended)
	}
	if s.JS == nil {
		return text.String()
	}
	ctx, cancel := context.WithTimeout(s.T.Context(), 10*time.Second)
	defer cancel()
	streams := s.JS.ListStreams(ctx)
	for info := range streams.Info() {
		if info.State.Msgs > 0 {
			fmt.Fprintf(&text, "; %s holds %d", info.Config.Name, info.State.Msgs)
		}
	}
	if err := streams.Err(); err != nil {
		fmt.Fprintf(&text, "; the streams are not known: %v", err)
	}
	return text.String()
}

// Eventually polls until ok returns true. Use it for events without a channel.
func (s Store) Eventually(what string, ok func() bool) {
	s.T.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(await.Patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			s.T.Fatalf("waited %s in vain for: %s; %s", await.Patience, what, s.seen())
		}
	}
}
