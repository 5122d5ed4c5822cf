package console

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/dispatcher"
	"weir/dispatcher/desk"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// TestInspectRunning looks into a running dispatcher: what it tells of every key is what was submitted, in order, ids
// included, also of jobs whose messages are not in memory any more.
func TestInspectRunning(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  slow:
    url: %s
    bucket: {rate: 1/h, capacity: 1000}
`)
	ctx, cancel := context.WithTimeout(t.Context(), weirtest.Patience)
	defer cancel()
	client := ingest.NewClient(r.NC)
	const keys = 12
	want, body := map[string][]string{}, []byte(strings.Repeat("x", 100<<10))
	for n := range keys {
		key := fmt.Sprintf("k.%d", n)
		for i := range 1 + 3*n {
			receipt, err := client.Submit(ctx, ingest.Submission{API: "slow", Key: key, Body: body})
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 { // the first is called at once
				want[key] = append(want[key], receipt.Job)
			}
		}
	}
	r.AwaitCalls(keys)
	d := r.Worker.Parts().Dispatcher.Desk
	state, err := d.State("slow")
	defer func() {
		if t.Failed() {
			t.Logf("%+v, %v", state, err)
		}
	}()
	r.Eventually("the first jobs' ends", func() bool {
		state, err = d.State("slow")
		return err == nil && state.Keys == keys-1 && state.InFlight == 0 && state.Jobs == 3*keys*(keys-1)/2
	})
	if err != nil || state.Partitions != 4 || state.Owned != 4 || state.Instance != "test" {
		t.Errorf("state %+v, %v", state, err)
	}
	states, err := d.Keys("slow", 5)
	if err != nil || len(states) != 5 {
		t.Fatalf("%d keys, %v", len(states), err)
	}
	for i, k := range states {
		if depth := 3 * (keys - 1 - i); k.Depth != depth || k.Key != fmt.Sprintf("k.%d", keys-1-i) || k.Capacity != 1000 ||
			k.Waits.For != schedule.WaitRate || time.Duration(k.WaitMS)*time.Millisecond < time.Duration(depth)*time.Hour {
			t.Errorf("key %d is %+v", i, k)
		}
	}
	detail, err := d.Show(ctx, "slow", "k.11", 100)
	if err != nil || len(detail.Next) != 33 {
		t.Fatalf("%d jobs, %v", len(detail.Next), err)
	}
	for i, j := range detail.Next {
		if j.Job != want["k.11"][i] || j.Position != i+1 || j.ETA == nil {
			t.Errorf("job %d is %+v, want id %s", i, j, want["k.11"][i])
		}
	}
	if _, err := d.Show(ctx, "slow", "k.0", 1); !errors.Is(err, desk.ErrNoKey) {
		t.Errorf("a key without jobs: %v", err)
	}
	if _, err := d.Keys("nobody", 1); !errors.Is(err, dispatcher.ErrNoAPI) {
		t.Errorf("an api that is not there: %v", err)
	}
}
