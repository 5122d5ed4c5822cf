package queue

import (
	"testing"
	"time"

	"weir/bucket"

	"pgregory.net/rapid"
)

// TestDedupeChanged checks that a job with a known id is judged by the value in force when it came, and not when it is
// read. If the value was being changed then, the job is in doubt.
func TestDedupeChanged(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	at := func(s int) bucket.Micros { return bucket.MicrosOf(start.Add(time.Duration(s) * time.Second)) }
	change := func(d *Dedupe, length time.Duration, s int) {
		d.Changing(length, at(s).Time())
		d.Changed(at(s + 1).Time())
	}
	lowered := NewDedupe(10 * time.Minute)
	change(lowered, 3*time.Second, 1000)
	raised := NewDedupe(3 * time.Second)
	change(raised, 10*time.Minute, 1000)
	open := NewDedupe(10 * time.Minute)
	open.Changing(3*time.Second, at(1000).Time()) // it is unknown which streams have it
	for _, c := range []struct {
		what           string
		d              *Dedupe
		accepted, came int
		want           Likeness
	}{
		{"lowered: both before", lowered, 900, 908, Same},
		{"lowered: both before, late", lowered, 100, 900, Another},
		{"lowered: about then", lowered, 900, 1001, InDoubt},
		{"lowered: about then, at once", lowered, 1000, 1001, Same},
		{"lowered: accepted before, came after", lowered, 900, 1010, Another},
		{"lowered: both after", lowered, 1010, 1018, Another},
		{"lowered: both after, at once", lowered, 1010, 1012, Same},
		{"raised: both before", raised, 900, 908, Another},
		{"raised: both after", raised, 1010, 1024, Same},
		{"raised: free for a while", raised, 900, 1024, InDoubt},
		{"open: at once", open, 1100, 1102, Same},
		{"open: late", open, 1100, 1108, InDoubt},
		{"open: very late", open, 1100, 1800, Another},
		{"the older one", raised, 1024, 1010, Earlier},
	} {
		if got := c.d.Judge(at(c.accepted), at(c.came)); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// TestDedupeJudge compares Judge with a stream whose clock is right. The stream gets each value at some time after the
// value is known.
func TestDedupeJudge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.IntRange(1, 30)
		value := time.Duration(seconds.Draw(t, "first")) * time.Second
		d := NewDedupe(value)
		type change struct {
			at     bucket.Micros
			length time.Duration
		}
		now := bucket.Micros(1 << 50)
		begin, truth := now, []change{{0, value}}
		for range rapid.IntRange(0, 5).Draw(t, "changes") {
			now = now.Add(time.Duration(seconds.Draw(t, "pause")) * time.Second)
			value = time.Duration(seconds.Draw(t, "next")) * time.Second
			d.Changing(value, now.Time())
			now = now.Add(time.Duration(rapid.IntRange(0, 4).Draw(t, "lag")) * time.Second)
			truth = append(truth, change{now, value})
			d.Changed(now.Time())
		}
		accepted := begin.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "accepted")) * time.Second)
		came := accepted.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "came")) * time.Second)
		known := time.Duration(0) // when it came
		for _, c := range truth {
			if c.at <= came {
				known = c.length
			}
		}
		free := accepted.Until(came) >= known
		switch got := d.Judge(accepted, came); {
		case got == Same && free, got == Another && !free, got == Earlier:
			t.Fatalf("%v after %v is %v, by a stream that knew ids for %v", came, accepted, got, known)
		}
	})
}
