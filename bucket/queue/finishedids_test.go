package queue

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
	"weir/bucket"
)

// TestFinishedIDs holds what a partition knows of finished jobs against a plain map: the newest under each id is known for as
// long as it may matter.
func TestFinishedIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x finishedIDs
		model, now := map[string]finishedID{}, bucket.Micros(1<<40)
		for step := range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
			since := now.Add(-10 * time.Second)
			id := fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "id"))
			if rapid.Bool().Draw(t, "add") {
				e := finishedID{uint64(step), now.Add(time.Duration(rapid.IntRange(-15, 0).Draw(t, "s")) * time.Second), false}
				x.add(id, e, since)
				if old, ok := model[id]; e.accepted > since && (!ok || old.accepted <= e.accepted) {
					model[id] = e
				}
			}
			want, known := model[id]
			got, ok := x.find(id)
			if matters := known && want.accepted > since; matters && (!ok || got != want) || ok && (!known || got != want) {
				t.Fatalf("%s at %d: got %v %v, want %v %v", id, now, got, ok, want, known)
			}
		}
	})
}

// TestFinishedIDsForgottenEarly: where there is no room for an id that is still known, that is told; where it has passed, nothing is.
func TestFinishedIDsForgottenEarly(t *testing.T) {
	for _, tt := range []struct {
		jobs   int
		pause  time.Duration
		forgot bool
	}{{5, 0, false}, {9, 0, true}, {100, time.Second, false}} {
		x, now := finishedIDs{sure: 4}, bucket.Micros(1<<40)
		for i := range tt.jobs {
			x.add(fmt.Sprint(i), finishedID{uint64(i), now, false}, now.Add(-2*time.Second))
			if _, known := x.find(fmt.Sprint(i)); !known {
				t.Errorf("%+v: job %d is not known", tt, i)
			}
			now = now.Add(tt.pause)
		}
		if x.forgot != tt.forgot {
			t.Errorf("%+v: ids were forgotten before their time: %v", tt, x.forgot)
		}
	}
}
