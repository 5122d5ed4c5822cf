package intake

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/ingest/await"
	"weir/ingest/client"

	"github.com/nats-io/nats.go"
)

// answersOf counts the answers to the jobs of batches: taken, known, or the code of the refusal.
func answersOf(t *testing.T, answers []client.Answer, err error, jobs int) map[string]int {
	t.Helper()
	if err != nil || len(answers) != jobs {
		t.Fatalf("%d answers to %d jobs: %v", len(answers), jobs, err)
	}
	counts := map[string]int{}
	for _, a := range answers {
		counts[outcomeOf(a)]++
	}
	return counts
}

func outcomeOf(a client.Answer) string {
	var refusal *client.Refusal
	switch {
	case errors.As(a.Err, &refusal):
		return fmt.Sprint(refusal.Code.Status())
	case a.Err != nil:
		return a.Err.Error()
	case a.Receipt.Duplicate:
		return "known"
	}
	return "taken"
}

// TestBatchOverflows submits one batch that is larger than its buckets. What fits is taken, in order, and each job that
// does not fit has its letter and its event. The same batch again is harmless.
func TestBatchOverflows(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  credit:
    url: %s
    bucket: {rate: 1/h, capacity: 10}
    keys: {small: {capacity: 3}}
`)
	events, err := r.NC.SubscribeSync("weir.events.throttled.>")
	if err != nil {
		t.Fatal(err)
	}
	var jobs []client.Submission
	for i := range 100 {
		key := fmt.Sprint("key ", i%8)
		if i%8 == 0 {
			key = "small"
		}
		jobs = append(jobs, client.Submission{API: "credit", Key: key, ID: fmt.Sprint("job-", i), Delay: time.Hour})
	}
	c := client.New(r.NC, client.Options{AnswerWithin: weirtest.Patience})
	answers, err := c.SubmitMany(t.Context(), jobs)
	const taken, refused = 7*10 + 3, 100 - 7*10 - 3
	if counts := answersOf(t, answers, err, 100); counts["taken"] != taken || counts["429"] != refused {
		t.Errorf("answers: %v", counts)
	}
	seqs, positions := map[string]uint64{}, map[string]int{}
	for i, a := range answers {
		key := jobs[i].Key
		var refusal *client.Refusal
		if errors.As(a.Err, &refusal) {
			if refusal.LetterSeq == 0 || refusal.RetryAfter == 0 || refusal.Job != jobs[i].ID {
				t.Errorf("job %d is refused as %+v", i, refusal)
			}
			continue
		}
		positions[key]++
		if rc := a.Receipt; rc.Job != jobs[i].ID || rc.Key != key || rc.Seq <= seqs[key] || rc.Position != positions[key] || rc.ETA.IsZero() {
			t.Errorf("job %d of %s: %+v", i, key, rc)
		}
		seqs[key] = a.Receipt.Seq
	}
	if letters := r.Store().Messages("WEIR_DEAD"); letters != refused {
		t.Errorf("%d letters for %d refusals", letters, refused)
	}
	for range refused {
		if _, err := events.NextMsg(weirtest.Patience); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{
		fmt.Sprintf("weir_jobs_accepted_total{api=\"credit\"} %d\n", taken), fmt.Sprintf("weir_jobs_throttled_total{api=\"credit\"} %d\n", refused),
		"weir_intake_duration_seconds_count{api=\"credit\"} 100\n",
	} {
		if !strings.Contains(r.HTTP().Get("/metrics"), line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	again, err := c.SubmitMany(t.Context(), jobs)
	if counts := answersOf(t, again, err, 100); counts["known"] != taken || counts["429"] != refused {
		t.Errorf("the same batch again: %v", counts)
	}
	for i, a := range again {
		if a.Err == nil && a.Receipt.Seq != answers[i].Receipt.Seq {
			t.Errorf("job %d is at %d, it was at %d", i, a.Receipt.Seq, answers[i].Receipt.Seq)
		}
	}
	if depth := r.Store().Waiting("credit"); depth != taken {
		t.Errorf("%d jobs are stored, %d were taken", depth, taken)
	}
}

// TestBatchOfGoodAndBad submits one batch in which some jobs are wrong, each in another way, and one stands twice. The
// others are called, those of a key in the order of the batch.
func TestBatchOfGoodAndBad(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{KeepBody: 16}, `
apis:
  credit:
    url: %s
    max_body: 100B
    bucket: {rate: 1000/s, burst: 100, capacity: 100, in_flight: 1}
`)
	var jobs []client.Submission
	for i := range 100 {
		jobs = append(jobs, client.Submission{API: "credit", Key: fmt.Sprint("k", i%5), Path: fmt.Sprint("/k", i%5), ID: fmt.Sprint("job-", i), Body: fmt.Appendf(nil, "%03d", i)})
	}
	jobs[10].Body = make([]byte, 101)
	jobs[20].Method = "PATCH"
	jobs[30].JobHeader = nats.Header{"Weir-Unheard": {"1"}}
	jobs[40].ID = "redrive.r1"
	jobs[50].Deadline = time.Now().Add(-time.Hour)
	jobs[60].Key = ""
	jobs[71] = jobs[66]
	want := map[string]int{"413": 1, "400": 5, "known": 1, "taken": 93}
	answers, err := client.New(r.NC, client.Options{AnswerWithin: weirtest.Patience}).SubmitMany(t.Context(), jobs)
	if counts := answersOf(t, answers, err, 100); !maps.Equal(counts, want) {
		t.Errorf("answers: %v, want %v", counts, want)
	}
	if outcomeOf(answers[71]) != "known" || answers[71].Receipt.Seq != answers[66].Receipt.Seq {
		t.Errorf("the job that stands twice: %+v, first %+v", answers[71], answers[66])
	}
	calls := r.AwaitCalls(93)
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("credit") == 0 })
	last := map[string]string{}
	for _, call := range calls {
		if body := string(call.Body); body <= last[call.Path] {
			t.Errorf("%s of %s was called after %s", body, call.Path, last[call.Path])
		} else {
			last[call.Path] = body
		}
	}
	if n := len(r.API.All()); n != 93 {
		t.Errorf("%d calls", n)
	}
	if letters := r.Store().Messages("WEIR_DEAD"); letters != 6 {
		t.Errorf("%d letters for 6 refusals", letters)
	}
}

// TestBatchThatIsCut sends a batch that cannot be divided: nothing of it is called, and it is one letter.
func TestBatchThatIsCut(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, producer.ManyJobsYAML)
	b := client.NewBatch("credit")
	for i := range 3 {
		job, err := client.Submission{API: "credit", Key: "k", ID: fmt.Sprint(i), Body: []byte("body")}.Message()
		if err == nil {
			err = b.Add(job)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	msg := b.Message()
	msg.Data = msg.Data[:len(msg.Data)-1]
	answer, err := r.NC.RequestMsg(msg, weirtest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.ParseBatch(answer.Data, 3)
	var refusal *client.Refusal
	if !errors.As(err, &refusal) || refusal.Code != client.Invalid || !strings.Contains(refusal.Description, "job 3 of 3, at byte ") {
		t.Fatalf("answered %s: %v", answer.Data, err)
	}
	dead, err := r.JS.Stream(t.Context(), "WEIR_DEAD")
	if err != nil {
		t.Fatal(err)
	}
	letter, err := dead.GetMsg(t.Context(), refusal.LetterSeq)
	if err != nil {
		t.Fatal(err)
	}
	if letter.Subject != "weir.dead.credit.invalid.k" || string(letter.Data) != string(msg.Data) || letter.Header.Get("Weir-Batch") != "3" {
		t.Errorf("the letter is %s %v %q", letter.Subject, letter.Header, letter.Data)
	}
	good, err := client.New(r.NC, client.Options{}).SubmitMany(await.Context(t, "a receipt"), []client.Submission{{API: "credit", Key: "k"}})
	if counts := answersOf(t, good, err, 1); counts["taken"] != 1 {
		t.Errorf("a good batch behind it: %v", counts)
	}
	r.AwaitCalls(1)
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("credit") == 0 })
	if calls, letters := len(r.API.All()), r.Store().Messages("WEIR_DEAD"); calls != 1 || letters != 1 {
		t.Errorf("%d calls, %d letters", calls, letters)
	}
}
