package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

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

// countingAPI takes packs, and counts how often it has processed each job. It knows the key of a call that it has
// processed, and answers as it did then.
type countingAPI struct {
	mu        sync.Mutex
	keyed     bool
	calls     int
	processed map[int]int
	bodies    map[string]string // the bodies of processed calls, by key
	wrong     []string
}

func (a *countingAPI) script(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
	var jobs []struct{ N int }
	body := string(q.Body())
	if err := json.Unmarshal([]byte(body), &jobs); err != nil {
		return fakeapi.Behaviour{Status: 400}
	}
	key := q.Header.Get("Idempotency-Key")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	was, known := a.bodies[key]
	if a.keyed && known && was != body {
		a.wrong = append(a.wrong, fmt.Sprintf("the key of %s is used for %s", was, body))
	}
	if a.calls%7 == 3 {
		return fakeapi.Behaviour{Status: 503}
	}
	if !a.keyed || !known {
		for _, j := range jobs {
			a.processed[j.N]++
		}
		a.bodies[key] = body
	}
	answer := fakeapi.Behaviour{Answer: fakeapi.AnswerText, Text: body, Delay: 20 * time.Millisecond}
	if a.calls%11 == 5 {
		answer.Fault = fakeapi.FaultClose // it has processed the call
	}
	return answer
}

// count returns the calls so far.
func (a *countingAPI) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls
}

// TestPacksSurviveKills: weir is killed again and again while it calls packs, some of which are refused or cut. Each
// job ends once, and none is processed twice.
func TestPacksSurviveKills(t *testing.T) {
	t.Parallel()
	for _, more := range []string{"idempotency: {header: Idempotency-Key}", ""} {
		t.Run("keyed="+strconv.FormatBool(more != ""), func(t *testing.T) {
			t.Parallel()
			api := &countingAPI{keyed: more != "", processed: map[int]int{}, bodies: map[string]string{}}
			r := weirtest.NewKillRig(t, fakeapi.Options{Script: api.script}, fmt.Sprintf(packYAML, more))
			const jobs, kills = 300, 6
			var producers sync.WaitGroup
			for key := range 3 {
				producers.Go(func() {
					for n := key; n < jobs; n += 3 {
						r.Publish(t.Context(), fmt.Sprintf("weir.jobs.pay.k%d", key), fmt.Sprint("job-", n), fmt.Appendf(nil, `{"n":%d}`, n))
					}
				})
			}
			for n := range kills {
				next := api.count() + 3
				if n == kills/2 {
					next += 30 // the packs of the kills so far end: after five kills in a row weir would park their jobs
				}
				await.Until(t, "calls", func() bool { return api.count() >= next })
				r.Proc.Kill()
				r.Start()
			}
			await.Return(t, "the producers", producers.Wait)
			r.AwaitEmpty()
			ends := r.Outcomes()
			for n := range jobs {
				of := ends[fmt.Sprint("job-", n)]
				if len(of) != 1 || of[0] != "done" && of[0] != "unknown" || api.processed[n] > 1 || of[0] == "done" && api.processed[n] != 1 {
					t.Errorf("job %d ended as %v, and was processed %d times", n, of, api.processed[n])
				}
			}
			for _, w := range api.wrong {
				t.Error(w)
			}
		})
	}
}
