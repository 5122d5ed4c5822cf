package lane

import (
	"log/slog"
	"testing"
	"time"

	"weir/bucket/queue"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// TestLostPartitionMayCallNothing checks that a lost partition makes no calls, even while its lease is still valid.
func TestLostPartitionMayCallNothing(t *testing.T) {
	p := &Owned{}
	if !p.MayCall() {
		t.Fatal("a partition that no other replica can own may not be called")
	}
	p.Lost.Store(true)
	if p.MayCall() {
		t.Error("a partition that is lost may be called")
	}
}

// TestRecallContainsACrash checks that a kept message over which weir crashes does not end the process, and that its
// job keeps its id and body for its letter.
func TestRecallContainsACrash(t *testing.T) {
	p := &Owned{W: &Lane{Name: "pay", Log: slog.New(slog.DiscardHandler)}, Cache: newReadAhead(queue.NewHoldings(1 << 20))}
	p.Cache.KeepLocked(queue.Entry{Seq: 1, Key: "k", Header: map[string][]string{ingest.HeaderJobID: {"j"}}, Data: []byte("body"), Time: time.Now()})
	rule := &ingest.Rule{API: "pay"} // reading fails without a method
	j := &Job{Job: &schedule.Job{Queue: &schedule.KeyQueue{Key: "k"}, Seq: 1}, Part: p, Terms: &Terms{API: &httpcall.API{Rule: rule}}}
	p.RecallKeptLocked(j)
	if j.Message == nil || j.Message.ID != "j" || string(j.Message.Body) != "body" {
		t.Errorf("the job came to %+v", j.Message)
	}
}
