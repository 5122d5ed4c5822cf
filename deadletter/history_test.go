package deadletter

import (
	"testing"
	"time"
)

// TestMet checks that the servers' time stamps, and the life in which a call was made, decide whether the call came
// after a letter. The clocks of replicas do not matter.
func TestMet(t *testing.T) {
	letter := &Kept{Letter: Letter{API: "pay", Key: "k", JobID: "j", Origin: "WEIR_pay_0.7.100", Redrives: 1, At: diedAt.Add(time.Hour)}, Seq: 5, Stored: diedAt}
	for _, c := range []struct {
		what  string
		trace Trace
		want  progress
	}{
		{"the life it ended, by a stream whose clock is ahead", Trace{Origin: "WEIR_pay_0.7.100", Redrives: 1, Stored: diedAt.Add(time.Second)}, nothing},
		{"an earlier life", Trace{Origin: "WEIR_pay_0.3.50", Stored: diedAt.Add(-time.Second)}, nothing},
		{"sent again, while the letter's replica was an hour ahead", Trace{Origin: "WEIR_pay_0.9.200", Stored: diedAt.Add(time.Second)}, resubmitted},
		{"redriven", Trace{Origin: "WEIR_pay_0.9.200", Redrives: 2, Stored: diedAt.Add(time.Second)}, redriven},
	} {
		r := histories{jobs: map[identity]jobHistory{}}
		r.add(letter)
		c.trace.Key, c.trace.Job = "k", "j"
		r.addCall("pay", c.trace)
		if s, _ := r.of(letter); s.since != c.want {
			t.Errorf("%s: %d, want %d", c.what, s.since, c.want)
		}
	}
}
