package jobindex

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/spend"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// paid records calls with several keys and prices. Some are not billed, and some are in doubt.
func (s *store) paid(from, to int) {
	s.t.Helper()
	acks := make([]jetstream.PubAckFuture, 0, to-from)
	for i := from; i < to; i++ {
		at := time.Now()
		c := ledger.Record{
			API: "pay", Key: fmt.Sprintf("tenant-%d.%d", i%3, i%7), Job: fmt.Sprint(i), Planned: at, Started: at, Ended: at, Sent: true, Price: ledger.Money(int64(i)),
			Billed: []deadletter.Billed{deadletter.BilledYes, deadletter.BilledUnknown, deadletter.NotBilled}[i%3], Outcome: ledger.Done, Final: i%2 == 0,
			Limits: []string{"day"}, Costs: []int64{2},
		}
		m := c.Message()
		m.Header = nil // needs no id of its own here
		ack, err := s.js.PublishMsgAsync(m)
		if err != nil {
			s.t.Fatal(err)
		}
		acks = append(acks, ack)
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			s.t.Fatal(err)
		}
	}
}

const paidAPIs = `
apis:
  pay: {url: https://a, price: 0.50, bucket: {rate: 1/s, capacity: 1}, limits: [{name: day, quota: 1000000/day}]}
`

// summed returns the account of an index that has read everything.
func (s *store) summed(x *Index, o spend.Options) *spend.Account {
	s.t.Helper()
	var a *spend.Account
	await.Until(s.t, "the whole account", func() bool {
		var err error
		if a, err = x.Spending(s.t.Context(), o); err != nil {
			s.t.Fatal(err)
		}
		return !a.Unfinished()
	})
	return a
}

// requireLedger compares an account with one read from the ledger.
func (s *store) requireLedger(got *spend.Account, o spend.Options) {
	s.t.Helper()
	want, err := spend.Of(s.t.Context(), &connect.Connection{Conn: s.js.Conn(), JetStream: s.js, Denied: &connect.Denials{}}, o)
	if err != nil {
		s.t.Fatal(err)
	}
	is, _ := json.Marshal(got)
	must, _ := json.Marshal(want)
	if string(is) != string(must) {
		s.t.Errorf("the account is\n%s\nthe ledger says\n%s", is, must)
	}
}

// lately returns the options of these tests: by key, for some hours, so that no midnight comes between.
func lately() spend.Options {
	now := time.Now()
	return spend.Options{By: spend.ByKey, Since: now.Add(-5 * time.Hour).Truncate(time.Hour), Now: now}
}

// TestAnotherVisitReadsOnlyWhatIsNew checks that a question about spending or limits reads no message of the ledger.
// New records are read once, whether a question needs them or not.
func TestAnotherVisitReadsOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	const many, few, visits = 5000, 10, 20
	s := newStore(t)
	s.paid(0, many)
	reader := newReader(t, s)
	x := reader.run(1 << 30)
	s.summed(x, lately())
	c, err := config.Parse([]byte(paidAPIs), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	api, _ := c.API("pay")
	visit := func(want int64) (read uint64) {
		t.Helper()
		before := reader.js.Conn().Stats().InMsgs
		for range visits {
			if _, err := x.Spending(t.Context(), lately()); err != nil {
				t.Fatal(err)
			}
			use, err := x.LimitUse(t.Context(), api, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			level := use.Limits[0].Used
			sum := int64(0)
			for _, n := range level {
				sum += n
			}
			if sum != want {
				t.Fatalf("%d units of the limit were used, want %d", sum, want)
			}
		}
		return reader.js.Conn().Stats().InMsgs - before
	}
	const asked = 2 * visits // each visit asks for the ledger's end
	if read := visit(2 * many); read > 2*asked {
		t.Errorf("with %d records in the ledger %d visits read %d messages", many, visits, read)
	}
	s.paid(many, many+few)
	if read := visit(2 * (many + few)); read > 2*asked+few {
		t.Errorf("with %d new records %d visits read %d messages", few, visits, read)
	}
	o := lately()
	s.requireLedger(s.summed(x, o), o)
}

// newReader returns the same store over a connection of its own, which counts what an index reads.
func newReader(t *testing.T, s *store) *store {
	t.Helper()
	nc, err := nats.Connect(s.js.Conn().ConnectedUrl(), nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return &store{t, js}
}

// TestSumsGoOnWithoutRoomForJobs checks that an index without room for older jobs still adds up the whole ledger.
func TestSumsGoOnWithoutRoomForJobs(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.paid(0, 3*perBlock)
	x := s.run(1)
	o := lately()
	s.requireLedger(s.summed(x, o), o)
	if page, err := x.List(t.Context(), Question{Done: true, Limit: 1}); err != nil || page.Since.IsZero() {
		t.Errorf("the index claims to have all jobs: %+v, %v", page, err)
	}
}

// TestSumsDoNotTrustDamage checks that the sums are of the new stream if the stream was made again, and that lost
// records are counted.
func TestSumsDoNotTrustDamage(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.paid(0, 50)
	calls, err := s.js.Stream(t.Context(), ledger.CallsStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := calls.DeleteMsg(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	x, o := s.run(1<<30), lately()
	if a := s.summed(x, o); a.Unreadable != 1 {
		t.Errorf("%d records are told to be missing", a.Unreadable)
	}
	s.requireLedger(s.summed(x, o), o)
	if err := s.js.DeleteStream(t.Context(), ledger.CallsStream); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "no ledger", func() bool {
		_, err := x.Spending(t.Context(), o)
		return errors.Is(err, ledger.ErrNoLedger)
	})
	s.create(ledger.CallsStream, ledger.CallSubjects.Below())
	s.paid(100, 110)
	await.Until(t, "the new ledger", func() bool {
		a, err := x.Spending(t.Context(), o)
		return err == nil && !a.Unfinished()
	})
	s.requireLedger(s.summed(x, o), o)
}

// TestSumsForgetWhatTheLedgerForgets checks that an account begins later when the server removes the oldest records,
// and agrees with the ledger.
func TestSumsForgetWhatTheLedgerForgets(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.paid(0, 50)
	x, o := s.run(1<<30), lately()
	s.summed(x, o)
	calls, err := s.js.Stream(t.Context(), ledger.CallsStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := calls.Purge(t.Context(), jetstream.WithPurgeSequence(20)); err != nil {
		t.Fatal(err)
	}
	first, err := calls.GetMsg(t.Context(), 20)
	if err != nil {
		t.Fatal(err)
	}
	a, err := x.Spending(t.Context(), o)
	if err != nil || a.Begins.Before(first.Time) || len(a.Groups) > 0 {
		t.Errorf("calls since %s are counted, the ledger begins at %s: %+v, %v", a.Begins, first.Time, a, err)
	}
}

// TestDeletedLedgerIsNotTold checks that the first question after the ledger was deleted gets no number from it.
func TestDeletedLedgerIsNotTold(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.paid(0, 10)
	x := New(Options{JetStream: s.js, Bytes: 1 << 30, SumBytes: 1 << 20, Log: slog.New(slog.DiscardHandler)})
	calls := x.ledger()
	if _, err := x.begin(t.Context(), calls); err != nil {
		t.Fatal(err)
	}
	if err := x.fill(t.Context(), calls); err != nil { // from here on only questions look at the stream
		t.Fatal(err)
	}
	o := lately()
	s.requireLedger(s.summed(x, o), o)
	if err := s.js.DeleteStream(t.Context(), ledger.CallsStream); err != nil {
		t.Fatal(err)
	}
	if a, err := x.Spending(t.Context(), o); !errors.Is(err, ledger.ErrNoLedger) {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestInterruptedReadingGoesOn checks that an interrupted reading of the ledger says how far it came. It continues
// there, counts no record twice, and every replica comes to the sums of the ledger.
func TestInterruptedReadingGoesOn(t *testing.T) {
	t.Parallel()
	const many, few, read, twice = 3000, 40, 1000, 300
	s := newStore(t)
	s.paid(0, many)
	x := New(Options{JetStream: s.js, Bytes: 1 << 30, SumBytes: 1 << 20, Log: slog.New(slog.DiscardHandler)})
	calls, o, broken := x.ledger(), lately(), errors.New("broken")
	back := calls.back
	calls.back = func(ctx context.Context, before uint64, add func(item) error) error {
		n := 0
		return back(ctx, before, func(i item) error {
			if n++; n > read {
				return broken
			}
			return add(i)
		})
	}
	if err := x.keepOnce(t.Context(), calls); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if a, err := x.Spending(t.Context(), o); err != nil || !a.Reading || a.Begins.IsZero() || a.Unreadable > 0 {
		t.Errorf("%+v, %v", a, err)
	}
	if err := s.js.DeleteStream(t.Context(), deadletter.Stream); err != nil { // sums need no letters
		t.Fatal(err)
	}
	s.paid(many, many+few)
	calls.back = func(ctx context.Context, before uint64, add func(item) error) error {
		return back(ctx, before+twice, add)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- x.keepOnce(ctx, calls) }()
	s.requireLedger(s.summed(x, o), o)
	other := s.run(1 << 30)
	s.requireLedger(s.summed(other, o), o)
	cancel()
	if err := await.Receive(t, "the end of the index", ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestPurgeWhileTheLedgerIsRead checks that records that the server removes before they are read are not waited for,
// and not reported as unreadable.
func TestPurgeWhileTheLedgerIsRead(t *testing.T) {
	t.Parallel()
	const many, gone, read = 3000, 2500, 100
	s := newStore(t)
	s.paid(0, many)
	calls, err := s.js.Stream(t.Context(), ledger.CallsStream)
	if err != nil {
		t.Fatal(err)
	}
	x := New(Options{JetStream: s.js, Bytes: 1 << 30, SumBytes: 1 << 20, Log: slog.New(slog.DiscardHandler)})
	source, n := x.ledger(), 0
	back := source.back
	source.back = func(ctx context.Context, before uint64, add func(item) error) error {
		return back(ctx, before, func(i item) error {
			if n++; n == read {
				if err := calls.Purge(ctx, jetstream.WithPurgeSequence(gone)); err != nil {
					return err
				}
			}
			return add(i)
		})
	}
	if _, err := x.begin(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	if err := x.fill(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	first, err := calls.GetMsg(t.Context(), gone)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := x.Spending(t.Context(), lately()); err != nil || a.Reading || a.Unreadable > 0 || a.Begins.Before(first.Time) {
		t.Errorf("calls since %s are counted, the ledger begins at %s: %+v, %v", a.Begins, first.Time, a, err)
	}
}
