package limitstate

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/machine"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// accountRig is an api's limits and their account on a real server, without a worker. The test stores the records
// itself.
type accountRig struct {
	t     *testing.T
	o     *Options
	rules bucket.Rules
	store *bucket.Memory
	*accounts
	calls int
}

func newAccountRig(t *testing.T) *accountRig {
	t.Helper()
	o := serverForLimits(t)
	day := bucket.Quota{Count: 1000, Window: bucket.Fixed, Per: machine.Lasting(50 * 24 * time.Hour)}
	return &accountRig{t: t, o: o, rules: bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1000}, Capacity: 100, InFlight: 100},
		Shared: []bucket.Limit{{Name: "day", Quota: &day}},
	}}
}

// live starts a process whose last checkpoint claims units that may not have been used.
func (r *accountRig) live(claims int64) {
	r.t.Helper()
	var err error
	if r.store, err = bucket.NewMemory(r.rules, r.o.Clock.Now); err != nil {
		r.t.Fatal(err)
	}
	var s bucket.Snapshot
	for i := range r.rules.Shared {
		l := bucket.LimitSnapshot{Name: r.rules.Shared[i].Name, Used: claims}
		l.Start, l.End = r.rules.Shared[i].Quota.Period(r.o.Clock.Now())
		s.Limit = append(s.Limit, l)
	}
	r.store.Restore(s)
	if r.accounts, err = openAccounts(r.t.Context(), r.o, testUnit("acc", r.store), r.store, 0); err != nil {
		r.t.Fatal(err)
	}
	r.recovered = func() (int, bool) { return 0, true }
}

// plant stores records of calls that a process made, or that it found without a record; the latter have no slot.
func (r *accountRig) plant(n int, planned time.Time, cost int64) {
	r.t.Helper()
	for range n {
		r.calls++
		costs := make([]int64, len(r.rules.Shared))
		for i := range costs {
			costs[i] = cost
		}
		r.record(ledger.Record{
			API: "acc", Key: "k", Job: "j", Stream: "WEIR_acc_0", Seq: uint64(r.calls), Call: 1, Planned: planned, Started: time.Now(),
			Sent: true, Outcome: ledger.Done, Final: true, Price: "0.00", Billed: deadletter.BilledYes, Instance: "test",
			Limits: r.rules.Names(), Costs: costs,
		})
	}
}

func (r *accountRig) record(c ledger.Record) {
	r.t.Helper()
	data, err := json.Marshal(c)
	if err == nil {
		_, err = r.o.JetStream.Publish(r.t.Context(), c.Subject(), data)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *accountRig) catchUp() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	if err := r.advance(ctx); err != nil {
		r.t.Fatal(err)
	}
}

func (r *accountRig) counts(limit string, want int64) {
	r.t.Helper()
	for _, l := range r.store.Levels() {
		if l.Limit.Name == limit && (l.Used != want || l.Bound) {
			r.t.Errorf("%s counts %d (bound: %v), want %d", limit, l.Used, l.Bound, want)
		}
	}
}

// TestAccountOfLives checks that an account continues over several processes. Calls that a process found of a former
// one count; calls that it made itself are not counted twice.
func TestAccountOfLives(t *testing.T) {
	r := newAccountRig(t)
	r.live(0)
	r.catchUp()
	r.counts("day", 0)
	r.plant(5, time.Now(), 2)
	r.catchUp()
	r.counts("day", 0) // calls of this process, which counts them by their grants
	r.plant(3, time.Now(), 1)

	r.live(100)
	r.plant(1, time.Time{}, 4)                    // a call that was found
	r.plant(1, time.Now().Add(-2*time.Second), 8) // a late record of the former process
	r.plant(7, time.Now().Add(time.Second), 1)    // of this process
	if l := r.store.Levels()[0]; l.Used != 100 || !l.Bound {
		t.Errorf("before it is known %d counts (bound: %v), want the bound of 100", l.Used, l.Bound)
	}
	r.catchUp()
	r.counts("day", 10+3+4+8)
	select {
	case <-r.settled:
	default:
		t.Error("no event reports it")
	}

	r.live(100) // the claim includes the calls of the last process
	r.catchUp()
	r.counts("day", 10+3+4+8+7)

	late := bucket.Quota{Count: 1000, Window: bucket.Fixed, Per: machine.Lasting(time.Hour)}
	r.rules.Shared = append(r.rules.Shared, bucket.Limit{Name: "late", Quota: &late})
	if err := r.store.Apply(r.rules); err != nil {
		t.Fatal(err)
	}
	r.plant(2, time.Now().Add(time.Second), 3)
	r.live(100)
	r.catchUp()
	r.counts("day", 10+3+4+8+7+6)
	r.counts("late", 6)
}

// TestUnloggedCallsCount checks that calls without a record that may have been under way count, up to the bound, and
// that they still count later.
func TestUnloggedCallsCount(t *testing.T) {
	r := newAccountRig(t)
	r.live(0)
	r.catchUp()
	r.plant(5, time.Now(), 1)
	r.live(20)
	r.recovered = func() (int, bool) { return 6, true }
	r.catchUp()
	r.counts("day", 11)
	r.live(50)
	r.catchUp()
	r.counts("day", 11)
	r.live(13)
	r.recovered = func() (int, bool) { return 6, true }
	r.catchUp()
	r.counts("day", 13)
}

// TestLedgerThatDoesNotTell checks that the bound stays if the ledger does not have all calls, and that the next death
// adds nothing to it.
func TestLedgerThatDoesNotTell(t *testing.T) {
	for name, spoil := range map[string]func(r *accountRig){
		"it lost its last records": func(r *accountRig) {
			r.note.Read += 100
			if err := r.put(t.Context(), r.note); err != nil {
				t.Fatal(err)
			}
		},
		"it was made anew": func(r *accountRig) {
			r.note.Born = r.note.Born.Add(-time.Hour)
			if err := r.put(t.Context(), r.note); err != nil {
				t.Fatal(err)
			}
		},
		"its old records are gone": func(r *accountRig) {
			stream, err := r.o.JetStream.Stream(t.Context(), ledger.CallsStream)
			if err == nil {
				err = stream.Purge(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		"a power cut took what was not synced": func(r *accountRig) {
			r.note.Boot = "another"
			if err := r.put(t.Context(), r.note); err != nil {
				t.Fatal(err)
			}
		},
		"a record cannot be read": func(r *accountRig) {
			if _, err := r.o.JetStream.Publish(t.Context(), "weir.calls.acc.k", []byte("{")); err != nil {
				t.Fatal(err)
			}
		},
		"the account cannot be read": func(r *accountRig) {
			if _, err := r.control.Put(t.Context(), accountKey("acc"), []byte("{")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newAccountRig(t)
			r.live(0)
			r.catchUp()
			r.plant(5, time.Now(), 1)
			spoil(r)
			r.live(100)
			r.catchUp()
			r.counts("day", 100)
			r.plant(3, time.Now().Add(time.Second), 1)
			r.live(120)
			r.catchUp()
			r.counts("day", 103)
		})
	}
}

// TestAccountOfAnOldLedger checks that the ledger corrects the claims of a version without accounts, if it claimed
// units that were not used.
func TestAccountOfAnOldLedger(t *testing.T) {
	r := newAccountRig(t)
	r.plant(5, time.Now(), 1)
	r.plant(5, time.Now().Add(-61*24*time.Hour), 1)
	r.live(1080)
	r.catchUp()
	r.counts("day", 5)
}

// TestAccountThatIsNotStored checks that calls without a record are added once, although the first storing fails.
func TestAccountThatIsNotStored(t *testing.T) {
	r := newAccountRig(t)
	r.live(100)
	r.recovered = func() (int, bool) { return 3, true }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.adopt(ctx, r.draft()); err == nil {
		t.Fatal("a cancelled account was stored")
	}
	r.catchUp()
	if l := r.store.Levels()[0]; l.Used != 3 || l.Bound {
		t.Errorf("three calls count as %d, bound %t", l.Used, l.Bound)
	}
}
