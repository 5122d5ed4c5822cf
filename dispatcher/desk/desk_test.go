package desk

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
	"weir/ingest/await"
)

// TestDeepest chooses among many keys while other goroutines change them: keys that stay are chosen rightly, and no
// goroutine waits long for the lock.
func TestDeepest(t *testing.T) {
	const keys, limit = 50_000, 100
	now := bucket.MicrosOf(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	s, p := schedule.New(&schedule.Policy{}, schedule.Pace{}, func(string) bucket.Micros { return 0 }), &schedule.Partition{Open: true}
	w := NewAPI(&lane.Lane{Sched: s, Now: func() bucket.Micros { return now }}, nil, nil)
	rnd := rand.New(rand.NewPCG(3, 4))
	var want []KeyPlace
	seq := uint64(0)
	for i := range keys {
		depth := 1 + rnd.IntN(3)
		if i%250 == 0 {
			depth += 2 + rnd.IntN(50)
		}
		key := fmt.Sprintf("k%d", i)
		for range depth {
			seq++
			s.Push(key, seq, p)
		}
		want = append(want, KeyPlace{depth, key})
	}
	want = keepDeepest(want, limit)

	stop, longest := make(chan struct{}), time.Duration(0)
	var changing sync.WaitGroup
	changing.Go(func() {
		for n := uint64(0); ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			asked := time.Now()
			w.Mu.Lock()
			longest = max(longest, time.Since(asked))
			s.Push(fmt.Sprintf("passing%d", n), seq+n+1, p)
			if n > 10 {
				s.Forget(s.Queues.Find(fmt.Sprintf("passing%d", n-10)))
			}
			w.Mu.Unlock()
		}
	})
	for range 5 {
		if got := w.deepestKeys(KeysWanted{Limit: limit}); !slices.Equal(got, want) {
			t.Errorf("chose %v, want %v", got, want)
		}
	}
	var paged []KeyPlace
	for wanted := (KeysWanted{Limit: 30}); len(paged) < limit; wanted.After = &paged[len(paged)-1] {
		paged = append(paged, w.deepestKeys(wanted)...)
	}
	if !slices.Equal(paged[:limit], want) {
		t.Errorf("pages hold %v, want %v", paged[:limit], want)
	}
	if got := w.deepestKeys(KeysWanted{Limit: limit, Match: "k4999"}); len(got) != 11 { // itself, and what it begins
		t.Errorf("%d keys contain k4999, want 11: %v", len(got), got)
	}
	close(stop)
	await.Return(t, "the end of the changes", changing.Wait)
	t.Logf("the lock was waited for at most %s", longest)
}
