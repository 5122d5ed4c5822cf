package admin

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/nats/connect"

	"github.com/nats-io/nats.go/micro"
)

// TestPostingsOfABusyReplica checks that a replica says of ends whether they were posted while it answers as many
// questions about jobs as it may.
func TestPostingsOfABusyReplica(t *testing.T) {
	t.Parallel()
	nc := natstest.JetStream(t).Conn()
	o := operator{
		ServiceOptions: ServiceOptions{Posting: func(EndPlace) *Posting { return &Posting{State: Posted} }, Log: slog.New(slog.DiscardHandler)},
		ctx:            context.Background(), listing: make(chan struct{}), searches: &sync.WaitGroup{},
	}
	service, err := micro.AddService(nc, micro.Config{Name: "busy", Version: "1.0.0"})
	if err == nil {
		err = service.AddEndpoint("traces", micro.HandlerFunc(o.traces), micro.WithEndpointSubject(tracesSubject))
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &connect.Connection{Conn: nc, At: "the test's server"}
	if _, err := TracesOf(t.Context(), c, "job"); err == nil {
		t.Fatal("the replica is not busy")
	}
	found, err := PostingsOf(t.Context(), c, "job", []EndPlace{{API: "pay", Stream: "WEIR_DEAD", Seq: 1}})
	if err != nil || len(found) != 1 || found[0] == nil || found[0].State != Posted {
		t.Errorf("a busy replica says %+v, %v", found, err)
	}
}

// TestPostingText checks that the sentence about an end that weir posts no more claims neither that the receiver has
// accepted it nor that weir has given it up, unless that is known.
func TestPostingText(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	for want, p := range map[string]Posting{
		"weir does not know any more whether it was posted":                                 {State: PostingSettled},
		"weir does not know whether it was posted: it is old":                               {State: PostingSettled, Why: "it is old"},
		"not known: the replica that was asked does not know how far the callback has come": {State: PostingUnknown},
		"not known: no answer":                               {State: PostingUnknown, Why: "no answer"},
		"posted: the receiver has accepted it":               {State: Posted},
		"given up at 2030-01-02T12:00:00.000Z: answered 422": {State: PostingGivenUp, GivenUpAt: at, Why: "answered 422"},
		"not posted: it was imported":                        {State: PostingNone, Why: "it was imported"},
		"waits to be posted; 1 other end is not posted yet":  {State: PostingWaits, Behind: 2},
	} {
		if text := p.Text(); text != want {
			t.Errorf("%+v: %q, want %q", p, text, want)
		}
	}
}
