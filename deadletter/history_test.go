package deadletter

import (
	"testing"
	"time"
)

// TestMet checks that the servers' time stamps, and the life in which a call was made, decide whether the call came
// after a letter. The replicas' clocks do not matter.
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
		{"redriven", Trace{Origin: "WEIR_pay_0.9.200", Redrives: 2, From: 5, Stored: diedAt.Add(time.Second)}, redriven},
	} {
		r := histories{jobs: map[identity]jobHistory{}}
		r.add(letter, time.Minute)
		c.trace.Key, c.trace.Job = "k", "j"
		r.addCall("pay", c.trace)
		if s, _ := r.of(letter); s.since != c.want {
			t.Errorf("%s: %d, want %d", c.what, s.since, c.want)
		}
	}
}

// TestMetByARefusedJob checks that the letter of a refused job, which ended no life, does not hide a call of the same
// job that was recorded before the letter.
func TestMetByARefusedJob(t *testing.T) {
	t.Parallel()
	const known = time.Minute
	for _, c := range []struct {
		what     string
		letter   Letter
		accepted time.Duration // before the letter
		want     progress
	}{
		{"taken, and sent again with a deadline that had passed", Letter{Reason: Invalid}, time.Second, resubmitted},
		{"refused, and taken under a ledger whose clock is behind", Letter{Reason: Overflow}, 2 * time.Second, resubmitted},
		{"the id of a job that was forgotten", Letter{Reason: Overflow}, known + time.Second, nothing},
		{"refused when it was redriven", Letter{Reason: Overflow, Redrives: 1}, time.Second, nothing},
		{"ended by the letter of another life", Letter{Reason: Rejected, Origin: "WEIR_pay_0.9.200"}, time.Second, nothing},
	} {
		c.letter.API, c.letter.Key, c.letter.JobID = "pay", "k", "j"
		letter := &Kept{Letter: c.letter, Seq: 5, Stored: diedAt}
		accepted := diedAt.Add(-c.accepted)
		r, where := histories{jobs: map[identity]jobHistory{}}, historyScope{}
		r.add(letter, known)
		where.add(letter, known)
		r.addCall("pay", Trace{Key: "k", Job: "j", Origin: "WEIR_pay_0.7.100", Accepted: accepted, Stored: accepted.Add(time.Second / 2)})
		if s, _ := r.of(letter); s.since != c.want {
			t.Errorf("%s: %d, want %d", c.what, s.since, c.want)
		}
		if c.want == resubmitted && where["pay"].calls.After(accepted) {
			t.Errorf("%s: the ledger is read from %s on", c.what, where["pay"].calls)
		}
	}
}

// TestMetWithAnotherJob checks that a redrive of a later job with the same id does not settle a letter.
func TestMetWithAnotherJob(t *testing.T) {
	t.Parallel()
	letter := &Kept{Letter: Letter{API: "pay", Key: "k", JobID: "j", Reason: Overflow}, Seq: 17, Stored: diedAt}
	for _, c := range []struct {
		what  string
		since []life
		want  progress
	}{
		{"called, has a letter, and is redriven", []life{{}, {redrives: 1, from: 30}}, resubmitted},
		{"refused, and redriven", []life{{redrives: 1, from: 30}, {redrives: 2, from: 30}}, resubmitted},
		{"refused, and redriven like the letter's own job", []life{{redrives: 1, from: 30}, {redrives: 1, from: 17}}, redriven},
		{"none", []life{{redrives: 1, from: 17}, {redrives: 2, from: 17}}, redriven},
	} {
		waits, called := histories{jobs: map[identity]jobHistory{}}, histories{jobs: map[identity]jobHistory{}}
		waits.add(letter, 0)
		called.add(letter, 0)
		for i, l := range c.since {
			waits.addProgress(identify("pay", "k", "j"), l)
			called.addCall("pay", Trace{Key: "k", Job: "j", Redrives: l.redrives, From: l.from, Stored: diedAt.Add(time.Duration(i+1) * time.Second)})
		}
		for where, r := range map[string]*histories{"waits": &waits, "called": &called} {
			if s, _ := r.of(letter); s.since != c.want {
				t.Errorf("%s, %s: %d, want %d", c.what, where, s.since, c.want)
			}
		}
	}
}
