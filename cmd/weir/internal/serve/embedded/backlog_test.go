package embedded

import (
	"testing"
	"time"
)

// TestBacklogIsWatched checks that the rest after a look is short while much waits for slow clients, however long the
// look took. Otherwise the rest is proportional to the duration of the look.
func TestBacklogIsWatched(t *testing.T) {
	const slow = 80 * time.Millisecond
	b := backlog{most: 100}
	for waiting, want := range map[int64]time.Duration{0: lookShare * slow, 50: lookShare * slow, 51: backlogLook, 500: backlogLook} {
		if b.waiting = waiting; b.rest(slow) != want {
			t.Errorf("with %d of %d waiting the next look comes after %v, want %v", waiting, b.most, b.rest(slow), want)
		}
	}
	if b.waiting = 0; b.rest(time.Microsecond) != backlogLook {
		t.Errorf("after a short look the next one comes after %v", b.rest(time.Microsecond))
	}
}
