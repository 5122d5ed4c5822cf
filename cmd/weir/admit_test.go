package main

import (
	"fmt"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
)

// TestAdmission: a soft limit lets a part more in and says so in the receipt, the stored job, its result and a metric; what
// is not taken, or is known, counts against nothing.
func TestAdmission(t *testing.T) {
	t.Parallel()
	const yaml = `
apis:
  pay:
    url: %%s
    bucket: {rate: 1/h, burst: 1, capacity: %d, in_flight: 1}
    admit:
      - {rate: 10/24h, algorithm: sliding_log, soft: 20%%%%}
      - {rate: 6/24h, algorithm: fixed_window}
`
	r := newRig(t, fakeapi.Options{}, fmt.Sprintf(yaml, 4))
	send := func(key, id string) answer {
		return r.submit("weir.jobs.pay."+key, nil, map[string]string{"Nats-Msg-Id": id})
	}
	expect := func(what string, a answer, taken, duplicate, soft bool) {
		t.Helper()
		if (a.Error == nil) != taken || a.Duplicate != duplicate || a.OverSoft != soft {
			t.Errorf("%s: %+v", what, a)
		}
	}
	// The same job again and again, and jobs for which the bucket is full, use up nothing of six a day.
	for i := range 4 {
		expect("a new job", send("k", fmt.Sprint(i)), true, false, false)
	}
	r.awaitCalls(1)
	r.eventually("the first job to be gone", func() bool { return r.waiting("pay") == 3 })
	for range 30 {
		expect("a job sent again", send("k", "2"), true, true, false)
	}
	expect("the fifth", send("k", "4"), true, false, false)
	for i := range 10 {
		expect("one for a full bucket", send("k", fmt.Sprint("full", i)), false, false, false)
	}
	r.follow(fmt.Sprintf(yaml, 100))
	expect("the sixth", send("k", "5"), true, false, false)
	for i := range 20 {
		a := send("k", fmt.Sprint("over", i))
		expect("one more than six a day", a, false, false, false)
		if a.Error != nil && !strings.Contains(a.Error.Description, "admission limit") {
			t.Errorf("refused with: %s", a.Error.Description)
		}
	}
	expect("a known one beyond the limit", send("k", "5"), true, true, false)
	// What the second limit refused 20 times has not used up the first: six of ten and two more are left.
	r.follow(strings.Replace(fmt.Sprintf(yaml, 100), "6/24h", "1000/24h", 1))
	for i := range 6 {
		expect("within ten", send("k", fmt.Sprint("more", i)), true, false, i >= 4)
	}
	expect("above the soft part", send("k", "last"), false, false, false)
	if !strings.Contains(r.get("/metrics"), `weir_jobs_over_soft_total{api="pay"} 2`) {
		t.Error("the metric does not say that two jobs are above the limit")
	}
	marked := 0
	for p := range 4 {
		stream, err := r.js.Stream(t.Context(), fmt.Sprintf("WEIR_pay_%d", p))
		if err != nil {
			t.Fatal(err)
		}
		for seq := stream.CachedInfo().State.FirstSeq; seq <= stream.CachedInfo().State.LastSeq; seq++ {
			if msg, err := stream.GetMsg(t.Context(), seq); err == nil && msg.Header.Get("Weir-Over-Soft") == "true" {
				marked++
			}
		}
	}
	if marked != 2 {
		t.Errorf("%d jobs are marked, want 2", marked)
	}
	r.follow(strings.NewReplacer("6/24h", "1000/24h", "1/h", "1000/s").Replace(fmt.Sprintf(yaml, 100)))
	r.awaitCalls(12)
	r.eventually("an empty queue", func() bool { return r.waiting("pay") == 0 })
	for _, letter := range r.letters("pay", "k") {
		if reason := letter.Header.Get("Weir-Dead-Reason"); reason != "overflow" {
			t.Errorf("a marked job became a letter: %v", letter.Header)
		}
	}
}
