package limitstate

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
)

// TestExcessIsToldOncePerChange checks that an excess in each of the vendor's periods, as while another program uses
// the account, is reported as one change. It is over when one period had none.
func TestExcessIsToldOncePerChange(t *testing.T) {
	var said bytes.Buffer
	w := &levelWatch{api: "pay", log: slog.New(slog.NewTextHandler(&said, nil))}
	limit := bucket.Limit{Name: "account", Rate: &bucket.Rate{Count: 60, Per: 5 * time.Minute, Burst: 1}}
	now := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	lines := func() int { return strings.Count(said.String(), "\n") }
	for range 30 { // half of each period of five minutes
		for _, units := range []int64{37, 36, 0} {
			levels := []bucket.Level{{Limit: limit, Excess: units, ExcessUntil: bucket.MicrosOf(now.Add(time.Minute))}}
			if units == 0 {
				levels = nil // a rate without an excess has no level
			}
			w.tellExcess(levels, now)
			now = now.Add(time.Minute)
		}
	}
	if lines() != 1 || !strings.Contains(said.String(), "units=37") {
		t.Errorf("told\n%s", said.String())
	}
	for range 10 {
		w.tellExcess(nil, now)
		now = now.Add(time.Minute)
	}
	if lines() != 2 || len(w.excess) != 0 {
		t.Errorf("told\n%s", said.String())
	}
}

func TestExcessShown(t *testing.T) {
	until := time.Date(2027, 1, 15, 12, 3, 0, 0, time.UTC)
	at := bucket.MicrosOf(until)
	quota := bucket.Limit{Name: "daily", Quota: &bucket.Quota{Count: 100, Window: bucket.Fixed, Per: time.Hour}}
	rate := bucket.Limit{Name: "account", Rate: &bucket.Rate{Count: 60, Per: time.Minute, Burst: 1}}
	levels := &Levels{}
	levels.add(&levelWatch{api: "pay", gap: func(string) string { return "" }, latest: []bucket.Level{
		{Limit: quota, Used: 63, Count: 100, Excess: 37, ExcessUntil: at}, {Limit: rate, Excess: 5, ExcessUntil: at},
	}})
	uses := []limits.Use{{Limit: "account", Used: 12, Count: 60, Per: time.Minute}}
	shown := WithUses(levels.Shown("pay"), uses, "me")
	if len(shown) != 2 {
		t.Fatalf("%+v", shown)
	}
	for i, want := range []string{
		"63 of 100 used; the vendor counts 37 more than weir until ",
		"12 of 60 used in the last 1m; the vendor counts 5 more than weir until ",
	} {
		if text := shown[i].Text(); !strings.HasPrefix(text, want) {
			t.Errorf("%q, want %q", text, want)
		}
	}
}

// TestReplicaLimitShown checks that the use of a limit of each replica names its replica.
func TestReplicaLimitShown(t *testing.T) {
	shown := WithUses(nil, []limits.Use{
		{Limit: "all", Used: 12, Count: 60, Per: time.Minute},
		{Limit: "address", Used: 5, Count: 20, Per: time.Second, Replica: true},
		{Limit: "sockets", Used: 2, Count: 50, Replica: true},
	}, "replica-1")
	want := []string{"12 of 60 used in the last 1m", "5 of 20 used in the last 1s at replica-1", "2 of 50 calls running at replica-1"}
	if len(shown) != len(want) {
		t.Fatalf("%+v", shown)
	}
	for i := range want {
		if text := shown[i].Text(); text != want[i] {
			t.Errorf("%q, want %q", text, want[i])
		}
	}
}
