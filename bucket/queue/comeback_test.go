package queue

import (
	"fmt"
	"testing"
	"time"

	"weir/bucket"
)

// TestComebacks checks that producers refused at the same time get times one place apart, that a producer that asks
// again before its time gets the same time, and that what is remembered is bounded.
func TestComebacks(t *testing.T) {
	var c comebacks
	now := bucket.Micros(1_000_000)
	ask := func(key, id string, now bucket.Micros, free time.Duration) time.Duration {
		return now.Until(c.tell(comeback{key: key, id: id, now: now, free: now.Add(free), step: func() time.Duration { return time.Second }}))
	}
	for i := range 60 {
		if got, want := ask("k", fmt.Sprint(i), now, 5*time.Millisecond), 5*time.Millisecond+time.Duration(i)*time.Second; got != want {
			t.Fatalf("number %d is told to come back in %s, want %s", i, got, want)
		}
	}
	if got := ask("k", "30", now.Add(10*time.Second), time.Millisecond); got != 20*time.Second+5*time.Millisecond {
		t.Errorf("who asks again too early is told %s, not his own time", got)
	}
	if got := ask("other", "a", now, 7*time.Millisecond); got != 7*time.Millisecond {
		t.Errorf("the first of another key is told %s", got)
	}
	late := now.Add(2 * time.Hour)
	if got := ask("k", "5", late, time.Millisecond); got != time.Millisecond {
		t.Errorf("when all times have passed the next is told %s", got)
	}
	for i := range 5000 {
		if got := ask("k", fmt.Sprint("flood", i), late, time.Millisecond); got > time.Millisecond+longestQueue {
			t.Fatalf("number %d is told %s: nobody knows how many of the others come", i, got)
		}
	}
	for i := range 2 * mostTold {
		ask(fmt.Sprint("key", i), fmt.Sprint("id", i), late, time.Minute)
		if len(c.newest) > mostTold || len(c.told) > mostTold {
			t.Fatalf("%d keys and %d ids are remembered", len(c.newest), len(c.told))
		}
	}
}
