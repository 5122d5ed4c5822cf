package clock

import (
	"sync"
	"testing"
	"time"

	"weir/ingest/await"
)

// TestBoottimeIsTheKernels checks that the computed time never runs ahead of the kernel's clock, never goes back, and
// is not far behind.
func TestBoottimeIsTheKernels(t *testing.T) {
	b := newBoottime()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			var last, nearest time.Duration = 0, time.Hour
			for range 20_000 {
				before := boottimeNow()
				now := b.now(time.Now())
				after := boottimeNow()
				if now > after {
					t.Errorf("%v ahead of the kernel", now-after)
					return
				}
				if now < last {
					t.Errorf("back by %v", last-now)
					return
				}
				last, nearest = now, min(nearest, before-now)
			}
			if nearest > time.Millisecond {
				t.Errorf("%v behind the kernel at best", nearest)
			}
		})
	}
	await.Return(t, "the readers of the clock", group.Wait)
}

// TestSuspended checks that the next reading notices a suspension of the machine, because only the wall clock has
// advanced. The test simulates it by subtracting the sleep from the lead measured before.
func TestSuspended(t *testing.T) {
	b := newBoottime()
	const slept = time.Hour
	b.now(time.Now())
	b.ahead.Add(-int64(slept)) // the lead before the machine slept
	b.wall.Add(-int64(slept))
	before := boottimeNow()
	if now := b.now(time.Now()); before-now > time.Minute {
		t.Errorf("%v behind after an hour's sleep", before-now)
	}

	// If the wall clock was set back by the length of the sleep, the next recheck notices the sleep.
	b.ahead.Add(-int64(slept))
	b.checked.Add(-int64(2 * recheck))
	before = boottimeNow()
	if now := b.now(time.Now()); before-now > time.Minute {
		t.Errorf("%v behind after an hour's sleep and a wall clock that was set back", before-now)
	}
}

// TestTwoWakeTogether checks that a reader that comes while another one measures a sleep also counts the sleep. A time
// that lags behind the wall clock for a moment would set the calendars forward for good.
func TestTwoWakeTogether(t *testing.T) {
	b := newBoottime()
	const slept = time.Hour
	b.now(time.Now())
	b.ahead.Add(-int64(slept))
	b.wall.Add(-int64(slept))
	nested := false
	b.kernel = func() time.Duration {
		if !nested {
			nested = true
			before := boottimeNow()
			if now := b.now(time.Now()); before-now > time.Minute {
				t.Errorf("%v behind while another one learns of the sleep", before-now)
			}
		}
		return boottimeNow()
	}
	b.now(time.Now())
	if !nested {
		t.Error("the sleep was not noticed")
	}
}

func BenchmarkElapsed(b *testing.B) {
	for b.Loop() {
		elapsed()
	}
}
