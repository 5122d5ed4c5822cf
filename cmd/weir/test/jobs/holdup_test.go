package jobs

import (
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/weirtest"
	"weir/deadletter"
	"weir/dispatcher/schedule"
)

// TestHoldupOfEndedJobs: weir shows what a job waited for after the job has ended, too: for a called job in the
// ledger's record and in `weir job`, for an uncalled one in its letter.
func TestHoldupOfEndedJobs(t *testing.T) {
	t.Parallel()
	open := make(chan struct{})
	release := sync.OnceFunc(func() { close(open) })
	defer release()
	r := newRigOf(t, func(_ http.ResponseWriter, q *http.Request) {
		if strings.HasSuffix(q.URL.Path, "/a") {
			select {
			case <-open:
			case <-q.Context().Done():
			}
		}
	}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 100/s, capacity: 10}\n    limits: [{name: lines, in_flight: 1}]\n")
	r.Producer().Pay("a", "first")
	r.Eventually("the first call", func() bool { return r.CLI().Shown("first", "calling: call 1") })
	sent := time.Now()
	r.Producer().Pay("b", "second")
	r.Producer().Pay("c", "third")
	for _, job := range []string{"second", "third"} {
		r.Eventually(job+" to wait for the limit", func() bool {
			return r.CLI().Shown(job, "its bucket waits for  limit lines")
		})
	}
	seen := time.Since(sent) // it took no longer until the schedule had them
	r.Eventually("them to have waited for it most of the time", func() bool { return time.Since(sent) > 3*seen+500*time.Millisecond })
	if out, code := r.CLI().Run("cancel", "pay", "third"); code != 0 {
		t.Fatalf("%d: %s", code, out)
	}
	release()
	r.Store().Ended("pay", "a", 1)
	r.Store().Ended("pay", "b", 1)

	if c := r.Store().Ledger("pay", "a")[0]; c.HeldFor != "" || c.HeldMS != 0 {
		t.Errorf("nothing held the first job up, its record says %s %s %d", c.HeldFor, c.HeldLimit, c.HeldMS)
	}
	c := r.Store().Ledger("pay", "b")[0]
	waited, held := c.Started.Sub(c.Accepted), time.Duration(c.HeldMS)*time.Millisecond
	if c.HeldFor != string(schedule.WaitLimit) || c.HeldLimit != "lines" || held < waited/2 || held > waited+20*time.Millisecond {
		t.Errorf("after %s the record says that %s %s held it for %s", waited, c.HeldFor, c.HeldLimit, held)
	}
	if out, code := r.CLI().Run("job", "first"); code != 0 || strings.Contains(out, "limit lines") {
		t.Errorf("%d: %s", code, out)
	}
	called := regexp.MustCompile(`; it had waited \d\S*s, \d\S*s of it for limit lines, and no other call of its key was made meanwhile\n`)
	if out, code := r.CLI().Run("job", "second"); code != 0 || !called.MatchString(out) {
		t.Errorf("%d: %s", code, out)
	}
	if out, code := r.CLI().Run("job", "second", "--json"); code != 0 || !strings.Contains(out, `"held_for":"limit","held_limit":"lines","held_ms":`) {
		t.Errorf("%d: %s", code, out)
	}
	detail := regexp.MustCompile(`^cancelled by an operator; it had waited \d\S*s, \d\S*s of it for limit lines$`)
	if got := r.Store().Letters("pay", "c")[0].Header.Get(deadletter.HeaderDetail); !detail.MatchString(got) {
		t.Errorf("the letter says: %s", got)
	}
}

// TestLetterNamesItsBudget: the letter of a job that found a budget spent names the budget.
func TestLetterNamesItsBudget(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `apis:
  pay:
    url: %s
    price: 0.10
    bucket: {rate: 100/s, capacity: 10}
    limits: [{name: spend, budget: 0.20/day, tz: `+machine.Noon()+`, on_exhausted: dead_letter}]
`)
	for _, job := range []string{"first", "second", "third"} {
		r.Producer().Pay("a", job)
	}
	r.Eventually("a letter", func() bool { return r.Store().Messages("WEIR_DEAD") == 1 })
	letter := r.Store().Letters("pay", "a")[0].Header
	if reason, detail := letter.Get(deadletter.HeaderReason), letter.Get(deadletter.HeaderDetail); reason != string(deadletter.OverBudget) || detail != "the budget spend is spent" {
		t.Errorf("the letter says %s: %s", reason, detail)
	}
}
