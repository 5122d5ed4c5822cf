package verify

import (
	"math"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/cmd/weir/internal/config"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

const packing = `
apis:
  pay:
    url: "http://127.0.0.1/x"
    timeout: 1s
    jitter: 5ms
    bucket: {rate: 100/s, burst: 1, capacity: 1000}
`

// TestCallAfterAPack checks that a job may be called again if the answer to its pack said "not now" of the job, and that
// any other second call is reported.
func TestCallAfterAPack(t *testing.T) {
	c, err := config.Parse([]byte(packing), config.Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := c.API("pay")
	begun := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name   string
		billed deadletter.Billed
		final  bool
		want   bucket.Outcome
	}{
		{"a job that the answer put off", deadletter.NotBilled, false, bucket.Pass},
		{"a job whose call is in doubt", deadletter.BilledUnknown, false, bucket.Fail},
		{"a job that was billed", deadletter.BilledYes, false, bucket.Fail},
		{"a job that had ended free of charge", deadletter.NotBilled, true, bucket.Fail},
	} {
		r := newReplay(a, begun, Bounds{})
		for call := range 2 {
			at := begun.Add(time.Duration(call) * time.Second)
			r.take(&ledger.Record{
				API: "pay", Key: "k", Job: "1", Seq: 1, Call: call + 1, Sent: true, Started: at, Planned: at, Ended: at.Add(time.Millisecond),
				Outcome: "retry", Billed: c.billed, Final: c.final, Pack: &queue.Pack{ID: at.String(), Place: 1, Of: 2},
			})
		}
		r.check(math.MaxInt64)
		if v := r.verdict(); v.Verdict != c.want {
			t.Errorf("%s: %s, want %s: %+v", c.name, v.Verdict, c.want, v)
		}
	}
}
