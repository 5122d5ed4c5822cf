package schedule

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestBusyMachine checks that a machine on which a thousand calls are due, and which sends one in a millisecond, spends
// most of its time on calls that leave. Each call that misses its slot costs it as much as one that leaves.
func TestBusyMachine(t *testing.T) {
	d := newDesk(fast(4))
	for range 10 {
		d.add(names("k", 100)...)
	}
	const spans = 900
	var due []*Job
	left := 0
	for range spans {
		fx := d.turn()
		due = append(due, fx.Start...)
		r := Reply{Sent: d.now, Came: d.now}
		for _, a := range fx.Asks {
			grants := make([]bucket.Grant, a.Want)
			for i := range grants {
				grants[i] = bucket.Grant{At: d.now, TAT: d.now.Add(d.spacing)}
			}
			r.Answers = append(r.Answers, bucket.Answer{Grants: grants})
		}
		if len(fx.Asks) > 0 {
			d.Answer(&fx, r)
		}
		d.now = d.now.Add(time.Millisecond)
		if len(due) == 0 {
			continue
		}
		j := due[0]
		if due = due[1:]; d.now > d.At(d.now).Latest(j) {
			d.Unstart(j)
			continue
		}
		left++
		d.Sent(j, d.now)
		d.Ended(j, nil, d.now)
		d.Finished(j)
	}
	if t.Logf("%d calls left in %d ms, %d slots were missed", left, spans, d.Forfeited); left < spans/2 || d.Forfeited > 2*int64(left) {
		t.Error("the machine was busy with calls that missed their slots")
	}
	if e := &d.Pipe.exit; e.leaving > int(e.most) || e.leaving < 0 {
		t.Errorf("%d jobs count as leaving, of at most %v", e.leaving, e.most)
	}
}
