package bucket

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestEndings holds what a partition knows of finished jobs against a plain map: each is known until its time, and no longer.
func TestEndings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x endings
		model, now := map[string]ending{}, Micros(1)
		for step := range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(rapid.Custom(func(t *rapid.T) time.Duration {
				return time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond
			}).Draw(t, "pause"))
			id := fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "id"))
			if rapid.Bool().Draw(t, "add") {
				e := ending{uint64(step), now.Add(time.Duration(rapid.IntRange(-5, 10).Draw(t, "s")) * time.Second), false}
				x.add(id, e, now)
				if e.until > now {
					model[id] = e
				}
			}
			want, known := model[id]
			known = known && now < want.until
			if got, ok := x.find(id, now); ok != known || ok && got != want {
				t.Fatalf("%s at %d: got %v %v, want %v %v", id, now, got, ok, want, known)
			}
		}
	})
}
