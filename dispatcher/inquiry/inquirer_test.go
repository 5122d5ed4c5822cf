package inquiry

import (
	"context"
	"net/http"
	"testing"
	"time"

	"weir/bucket"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
)

// TestAgeAt checks that each wait between two inquiries is twice the one before, up to longestRest, and that waits go
// on after that. They once ended then, and the remaining inquiries were all due at once.
func TestAgeAt(t *testing.T) {
	for _, after := range []time.Duration{5 * time.Minute, time.Hour, longestRest} {
		age, want := ageAt(after, 0), after
		if age != after {
			t.Errorf("the first inquiry after %s is due at the age of %s", after, age)
		}
		for n := 1; n <= 100; n++ {
			next := ageAt(after, n)
			wait := next - age
			want = min(2*want, longestRest)
			if wait != want {
				t.Fatalf("after %s: the wait before inquiry %d is %s, want %s", after, n+1, wait, want)
			}
			age = next
		}
	}
}

// slowStore is a store whose first answer takes longer than a slot may be ahead.
type slowStore struct {
	bucket.Store
	asked int
	late  func()
}

func (s *slowStore) Reserve(ctx context.Context, asks []bucket.Ask) ([]bucket.Answer, error) {
	if s.asked++; s.asked == 1 {
		s.late()
	}
	return s.Store.Reserve(ctx, asks)
}

// TestLateAnswerTakesAnotherSlot checks that an inquiry does not leave later than this replica's own limits count it,
// because the store answered late: it gives its slot back and takes another one.
func TestLateAnswerTakesAnotherSlot(t *testing.T) {
	var off time.Duration
	now := func() bucket.Micros { return bucket.MicrosOf(time.Now().Add(off)) }
	rate := bucket.Rate{Count: 100, Per: time.Second, Burst: 1}
	rules := bucket.Rules{
		Jitter: 100 * time.Millisecond, Key: bucket.KeyLimits{Rate: rate, Capacity: 10, InFlight: 1},
		Replica: []bucket.Limit{{Name: "paced", Rate: &rate, Replica: true}},
	}
	memory, err := bucket.NewMemory(rules, now)
	if err != nil {
		t.Fatal(err)
	}
	store := &slowStore{Store: memory, late: func() { off = 2 * slotAhead }}
	policy := &schedule.Policy{Rules: rules}
	l := &lane.Lane{
		Env: &lane.Env{}, Now: now, Wake: make(chan struct{}, 1),
		Sched: schedule.New(policy, schedule.Pace{MaxCalls: 1, MaxStaged: 1}, func(string) bucket.Micros { return 0 }),
	}
	var back []bucket.Use
	w := New(l, Options{
		Store: store, Settle: func(_ context.Context, uses []bucket.Use) { back = append(back, uses...) },
		TAT: func(string) bucket.Micros { return 0 },
	})
	a := &askedLetter{w: w, terms: &lane.Terms{API: &httpcall.API{Rules: rules}}, Kept: deadletter.Kept{}}
	a.Key = "k"
	use, _, err := a.awaitSlot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if store.asked != 2 || len(back) != 1 || !back[0].Returned || use.Returned {
		t.Errorf("%d asks, %d slots given back", store.asked, len(back))
	}
	if left := now(); left > a.slot {
		t.Errorf("the inquiry leaves %v after the slot that counts", a.slot.Until(left))
	}
}

// TestPushedBackInquiry checks that a pushed-back inquiry reports the hold, and has it stored in its partition. Of a
// second pushback during the hold there is no news.
func TestPushedBackInquiry(t *testing.T) {
	var now bucket.Micros = 1
	l := &lane.Lane{
		Now: func() bucket.Micros { return now }, Wake: make(chan struct{}, 1),
		Sched: schedule.New(&schedule.Policy{}, schedule.Pace{MaxCalls: 1, MaxStaged: 1}, func(string) bucket.Micros { return 0 }),
	}
	part := &lane.Owned{W: l}
	var stored, told []schedule.HoldChange
	a := &askedLetter{part: part, w: New(l, Options{Held: func(p *lane.Owned, hold schedule.HoldChange, news []schedule.HoldChange) {
		if p != part {
			t.Error("the hold is stored elsewhere")
		}
		stored, told = append(stored, hold), append(told, news...)
	}})}
	for range 2 {
		a.heedPushback(httpcall.Response{Status: 429, Header: http.Header{"Retry-After": {"60"}}})
		now = now.Add(time.Second)
	}
	if len(stored) != 2 || stored[1].Until != now.Add(59*time.Second) || len(told) != 1 || told[0] != stored[0] {
		t.Errorf("stored %+v, told %+v", stored, told)
	}
}

// TestInquiryWakesNothing checks that the end of an inquiry does not make the schedule step if no job waits for it.
func TestInquiryWakesNothing(t *testing.T) {
	now := func() bucket.Micros { return bucket.MicrosOf(time.Now()) }
	l := &lane.Lane{
		Now: now, Wake: make(chan struct{}, 1),
		Sched: schedule.New(&schedule.Policy{}, schedule.Pace{MaxCalls: 1, MaxStaged: 1}, func(string) bucket.Micros { return 0 }),
	}
	a := &askedLetter{w: New(l, Options{})}
	if err := a.awaitReplica(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.endReplica(true)
	if len(l.Wake) != 0 {
		t.Error("the schedule steps")
	}
}
