package schedule

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
)

// TestOneKeyAsksAStoreThatIsAway checks that while the store of slots does not answer, one key at a time asks, at
// growing intervals. After LongWait only the job that asks is kept ready. At the first answer all keys may ask.
func TestOneKeyAsksAStoreThatIsAway(t *testing.T) {
	const keys = 20
	for _, late := range []bool{false, true} { // whether the keys have their jobs only when the store is away
		d := newDesk(fast(4))
		d.store.clock, d.store.tatOf = OtherClock, func(string) bucket.Micros { return 0 }
		add := func(from int) {
			for i := from; i < keys; i++ {
				d.Push(fmt.Sprint("k", i), uint64(i+1), d.part)
			}
		}
		if d.Push("k0", 1, d.part); !late {
			add(1)
		}
		var fx Effects
		// next turns until some key asks, and returns which do.
		next := func() (asked []string) {
			for range 1000 {
				if fx = d.turn(); len(fx.Asks) > 0 {
					for _, a := range fx.Asks {
						asked = append(asked, a.Key)
					}
					return asked
				}
				if at := d.Next(d.now); at == Never {
					t.Fatal("no key asks any more")
				} else {
					d.now = max(at, d.now+1)
				}
			}
			t.Fatal("no key asks")
			return nil
		}
		down := func() {
			d.now += 1000
			d.Answer(&fx, Reply{Sent: d.now - 1000, Came: d.now, Err: errors.New("away")})
		}
		if asked := next(); late != (len(asked) == 1) {
			t.Fatalf("%v ask before anything is known of the store", asked)
		}
		down()
		if late {
			add(1)
		}
		began, before, wait := d.now, d.now, time.Duration(0)
		for round := range keys {
			asked := next()
			if len(asked) != 1 || len(fx.Asks) != 1 || fx.Asks[0].Want != 1 {
				t.Fatalf("round %d, %s after the first: %v ask a store that is away", round, began.Until(d.now), asked)
			}
			if waited := before.Until(d.now); waited < wait || waited < StoreRetry {
				t.Errorf("round %d came after %s, the one before it after %s", round, waited, wait)
			} else {
				wait = min(waited, MostStoreRetry)
			}
			down()
			before = d.now
			if d.Pipe.staged > 0 && began.Until(d.now) > limits.LongWait {
				t.Errorf("round %d, %s after the first: %d jobs are kept ready", round, began.Until(d.now), d.Pipe.staged)
			}
		}
		if asked := next(); len(asked) != 1 {
			t.Fatalf("%v ask", asked)
		}
		answer := bucket.Answer{Now: d.now, Grants: []bucket.Grant{{At: d.now, TAT: d.now.Add(10 * time.Millisecond)}}}
		d.Answer(&fx, Reply{Sent: d.now, Came: d.now, Answers: []bucket.Answer{answer}})
		left := keys - 1
		for range keys {
			d.now += 1000
			fx = d.turn()
			if left -= len(fx.Asks); len(fx.Asks) > 0 {
				break
			}
		}
		if left > 0 {
			t.Errorf("at the first answer %d of %d keys do not ask", left, keys-1)
		}
	}
}
