package recovery

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/ingest/await"
)

// packAPI takes packs, and does not answer a call before the test lets it.
type packAPI struct {
	mu     sync.Mutex
	answer chan struct{}
	bodies []string // of the calls so far
	keys   []string
}

func (a *packAPI) script(ctx context.Context, q *fakeapi.Request) fakeapi.Behaviour {
	var jobs []json.RawMessage
	if err := json.Unmarshal(q.Body(), &jobs); err != nil {
		return fakeapi.Behaviour{Status: 400}
	}
	text, err := json.Marshal(jobs)
	if err != nil {
		return fakeapi.Behaviour{Status: 400}
	}
	a.mu.Lock()
	a.bodies, a.keys = append(a.bodies, string(text)), append(a.keys, q.Header.Get("Idempotency-Key"))
	answer := a.answer
	a.mu.Unlock()
	select {
	case <-answer:
	case <-ctx.Done():
	}
	return fakeapi.Behaviour{Answer: fakeapi.AnswerText, Text: string(text)}
}

// calls returns the bodies and the keys of the calls so far.
func (a *packAPI) calls() (bodies, keys []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.bodies), slices.Clone(a.keys)
}

// release answers the calls that wait, and all later ones.
func (a *packAPI) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.answer)
}

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
			api := &packAPI{answer: make(chan struct{})}
			r := weirtest.NewKillRig(t, fakeapi.Options{Script: api.script}, fmt.Sprintf(packYAML, c.more))
			r.Start()
			t.Cleanup(func() { r.Proc.Kill() })
			const jobs = 10
			for n := range jobs {
				r.Publish(t.Context(), "weir.jobs.pay.a", fmt.Sprint("job-", n), fmt.Appendf(nil, `{"n":%d}`, n))
			}
			await.Until(t, "calls of all jobs", func() bool { bodies, _ := api.calls(); return len(bodies) == jobs/5 })
			before, keys := api.calls()
			r.Proc.Kill()
			r.Start()
			api.release()
			r.AwaitEmpty()
			after, again := api.calls()
			if c.want == "done" {
				for i, body := range before {
					k := slices.Index(after[len(before):], body)
					if k < 0 || again[len(before)+k] != keys[i] {
						t.Errorf("the call %s under %s is not repeated: %v under %v", body, keys[i], after[len(before):], again[len(before):])
					}
				}
			} else if len(after) != len(before) {
				t.Errorf("%d calls, then %d", len(before), len(after))
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
