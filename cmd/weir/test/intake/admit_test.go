package intake

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
)

// TestAdmission: a soft limit lets a part more in and says so in the receipt, the stored job, its result and a metric; what
// is not taken, or is known, counts against nothing.
func TestAdmission(t *testing.T) {
	t.Parallel()
	day := machine.Lasting(24 * time.Hour).String()
	yaml := `
apis:
  pay:
    url: %%s
    bucket: {rate: 1/h, burst: 1, capacity: %d, in_flight: 1}
    admit:
      - {rate: 10/24h, algorithm: sliding_log, soft: 20%%%%}
      - {rate: 6/` + day + `, algorithm: fixed_window}
`
	r := weirtest.NewRig(t, fakeapi.Options{}, fmt.Sprintf(yaml, 4))
	send := func(key, id string) producer.Answer {
		return r.Producer().Submit("weir.jobs.pay."+key, nil, map[string]string{"Nats-Msg-Id": id})
	}
	expect := func(what string, a producer.Answer, taken, duplicate, soft bool) {
		t.Helper()
		if (a.Error == nil) != taken || a.Duplicate != duplicate || a.OverSoft != soft {
			t.Errorf("%s: %+v", what, a)
		}
	}
	// The same job again and again, and jobs for which the bucket is full, use up nothing of six a day.
	for i := range 4 {
		expect("a new job", send("k", fmt.Sprint(i)), true, false, false)
	}
	r.AwaitCalls(1)
	r.Eventually("the first job to be gone", func() bool { return r.Store().Waiting("pay") == 3 })
	for range 30 {
		expect("a job sent again", send("k", "2"), true, true, false)
	}
	expect("the fifth", send("k", "4"), true, false, false)
	for i := range 10 {
		expect("one for a full bucket", send("k", fmt.Sprint("full", i)), false, false, false)
	}
	r.Follow(fmt.Sprintf(yaml, 100))
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
	r.Follow(strings.Replace(fmt.Sprintf(yaml, 100), "6/"+day, "1000/"+day, 1))
	for i := range 6 {
		expect("within ten", send("k", fmt.Sprint("more", i)), true, false, i >= 4)
	}
	expect("above the soft part", send("k", "last"), false, false, false)
	if !strings.Contains(r.HTTP().Get("/metrics"), `weir_jobs_over_soft_total{api="pay"} 2`) {
		t.Error("the metric does not say that two jobs are above the limit")
	}
	marked := 0
	for p := range 4 {
		stream, err := r.JS.Stream(t.Context(), fmt.Sprintf("WEIR_pay_%d", p))
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
	r.Follow(strings.NewReplacer("6/"+day, "1000/"+day, "1/h", "1000/s").Replace(fmt.Sprintf(yaml, 100)))
	r.AwaitCalls(12)
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("pay") == 0 })
	for _, letter := range r.Store().Letters("pay", "k") {
		if reason := letter.Header.Get("Weir-Dead-Reason"); reason != "overflow" {
			t.Errorf("a marked job became a letter: %v", letter.Header)
		}
	}
}
