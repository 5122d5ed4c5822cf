package recovery

import (
	"fmt"
	"slices"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/ingest/await"
)

const packYAML = `
apis:
  pay:
    url: %%s/v1
    timeout: 1m
    bucket: {rate: 100/s, capacity: 500, in_flight: 4}
    pack: {jobs: 5, wait: 2s}
    %s
`

// TestKilledDuringPack: weir is killed while two packs are called. If the api takes idempotency keys, each is repeated
// as it was, under its key; otherwise each of their jobs is unknown. Each job ends once.
func TestKilledDuringPack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ more, want string }{
		{"idempotency: {header: Idempotency-Key}", "done"},
		{"", "unknown"},
	} {
		t.Run(c.want, func(t *testing.T) {
			t.Parallel()
			api := &fakeapi.Packs{}
			r := weirtest.NewKillRig(t, fakeapi.Options{Script: api.Script}, fmt.Sprintf(packYAML, c.more))
			const jobs = 10
			for n := range jobs {
				r.Publish(t.Context(), "weir.jobs.pay.a", fmt.Sprint("job-", n), fmt.Appendf(nil, `{"n":%d}`, n))
			}
			await.Until(t, "calls of all jobs", func() bool { return len(api.Calls()) == jobs/5 })
			before := api.Calls()
			r.Proc.Kill()
			r.Start()
			api.Release()
			r.AwaitEmpty()
			again := api.Calls()[len(before):]
			if c.want == "done" {
				for _, call := range before {
					if !slices.Contains(again, call) {
						t.Errorf("the call %+v is not repeated: %+v", call, again)
					}
				}
			} else if len(again) > 0 {
				t.Errorf("%+v, and then %+v", before, again)
			}
			ends := r.Outcomes()
			for n := range jobs {
				if of := ends[fmt.Sprint("job-", n)]; len(of) != 1 || of[0] != c.want {
					t.Errorf("job %d ended as %v", n, of)
				}
			}
		})
	}
}
