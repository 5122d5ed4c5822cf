package schedule

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"weir/bucket"
)

// BenchmarkCall measures one call in the schedule alone, from the job's arrival to its end, while a thousand or
// a million other keys wait for slots that are hours away. B/key is the memory of a waiting key beside the
// server.
func BenchmarkCall(b *testing.B) {
	for _, keys := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			d := newDesk(bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Microsecond, Burst: 1}, Capacity: 1000, InFlight: 4})
			d.spacing = time.Microsecond
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for i := range keys {
				d.Push(fmt.Sprintf("customer-%07d", i), uint64(i+1), d.part).TAT = d.now.Add(time.Hour + time.Duration(i)*time.Microsecond)
			}
			for d.Next(d.now) <= d.now {
				d.turn()
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			seq := uint64(keys)
			b.ReportAllocs()
			for b.Loop() {
				d.now = d.now.Add(10 * time.Microsecond)
				seq++
				d.Push("busy", seq, d.part)
				for ended := false; !ended; d.now = d.now.Add(time.Microsecond) {
					d.grant()
					if q := d.byKey["busy"]; q != nil && len(q.Jobs) > 0 && q.Jobs[0].Phase == calling {
						j := q.Jobs[0]
						d.Ended(j, nil, d.now)
						d.Finished(j)
						ended = true
					}
				}
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(keys), "B/key")
			runtime.KeepAlive(d)
		})
	}
}
