package soak

import (
	"context"
	"fmt"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestRedriveKilledHalfWay kills redrives with kill -9 while jobs are on their way, and starts them again when the stream
// has long forgotten the ids of what was redriven: on the api's own ledger every job stands exactly once.
func TestRedriveKilledHalfWay(t *testing.T) {
	t.Parallel()
	const keys, each = 100, 12
	r := weirtest.NewRig(t, fakeapi.Options{KeepBody: 64}, `
dedupe: 1s
apis:
  pay: {url: %s, bucket: {rate: 20/s, capacity: 6}}
`)
	r.WhilePaused(func() { // so that none of them makes room for the next
		var jobs []*nats.Msg
		for i := range keys * each {
			jobs = append(jobs, weirtest.JobFor("pay", fmt.Sprint("k", i/each), fmt.Sprint("job-", i)))
		}
		weirtest.Fill(t, r.NC, jobs)
	})
	r.Eventually("an empty queue", func() bool { return r.Waiting("pay") == 0 })
	letters, before := r.LetterCount(), len(r.API.All())
	if letters+before != keys*each || letters != keys*each/2 {
		t.Fatalf("%d calls and %d letters of %d jobs", before, letters, keys*each)
	}
	killed := 0
	for _, rate := range []string{"20/s", "1000000/s", "1000/s"} { // few are on their way at once, which takes long, and then many
		if killed == 2 || letters == 0 {
			break
		}
		cmd := r.Redriving("--rate", rate)
		ctx, cancel := context.WithTimeout(t.Context(), weirtest.Patience)
		err := r.API.Await(ctx, func(sum fakeapi.Totals) bool { return sum.Ended >= int64(before+1) })
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := await.Result(t, "the end of a killed redrive", cmd.Wait); err != nil {
			killed++ // else it had ended before
		}
		r.Eventually("an empty queue", func() bool { return r.Waiting("pay") == 0 })
		left := r.LetterCount()
		t.Logf("killed with %d letters deleted and %d jobs called", letters-left, len(r.API.All())-before)
		before, letters = len(r.API.All()), left
	}
	if killed == 0 {
		t.Fatal("no redrive was killed half way")
	}
	if err := await.Result(t, "the last redrive", r.Redriving("--rate", "300/s").Wait); err != nil {
		t.Errorf("the last redrive: %v", err)
	}
	r.AwaitCalls(keys * each)
	r.Eventually("an empty queue", func() bool { return r.Waiting("pay") == 0 })
	calls := r.PerBody()
	for body, n := range calls {
		if n != 1 {
			t.Errorf("%s was called %d times", body, n)
		}
	}
	if len(calls) != keys*each || r.LetterCount() != 0 {
		t.Errorf("%d of %d jobs were called, %d letters are left", len(calls), keys*each, r.LetterCount())
	}
}
