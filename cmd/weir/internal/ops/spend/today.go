package spend

import (
	"context"
	"maps"
	"time"

	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go/jetstream"
)

// Sum is money that was spent, and what is in doubt; and what was saved.
type Sum struct {
	ledger.Spending
	Savings ledger.Savings
}

// Text formats both as the ledger does.
func (s Sum) Text() (spent, inDoubt string) { return s.Spending.Text() }

// Today adds up what was spent on each api since midnight, by UTC. It returns the same numbers as Of, but reads only
// new records. The zero value has read nothing.
type Today struct {
	day  time.Time
	read uint64 // the newest record
	sums map[string]Sum
}

// LedgerEnd returns the present end of the ledger: sums up to there are of this moment. It fails with
// ledger.ErrNoLedger.
func LedgerEnd(ctx context.Context, js jetstream.JetStream) (uint64, error) {
	return ledger.End(ctx, js)
}

// Update reads what was recorded since the last call, up to a sequence from LedgerEnd; at first, and when a day has
// begun, all of today. It blocks until that is read, or ctx ends. What was read by then counts, so that the next call
// continues there.
func (t *Today) Update(ctx context.Context, js jetstream.JetStream, now time.Time, upTo uint64) error {
	if day := midnight(now); !day.Equal(t.day) {
		*t = Today{day: day, sums: map[string]Sum{}}
	}
	from := ledger.Place{Since: t.day, UpTo: upTo}
	if t.read > 0 {
		from = ledger.Place{After: t.read, UpTo: upTo}
	}
	return ledger.ReadFrom(ctx, js, from, func(r *ledger.Record) {
		t.read = r.At
		if r.Started.Before(t.day) {
			return
		}
		sum := t.sums[r.API]
		sum.AddRecord(r)
		sum.Savings.AddRecord(r)
		t.sums[r.API] = sum
	})
}

// ByAPI returns the sums.
func (t *Today) ByAPI() map[string]Sum { return maps.Clone(t.sums) }
