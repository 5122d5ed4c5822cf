package ledger

import (
	"strconv"
	"strings"

	"weir/deadletter"
)

// Spending is money in millionths of the currency: Spent on billed calls, and InDoubt for calls that may have been
// billed. Every report of spending adds up with it, so that all reports agree. A budget counts both, and also what
// running calls may cost.
type Spending struct{ Spent, InDoubt int64 }

// Savings counts jobs that ended with the answers of other jobs. Saved is the money in millionths that calls of these
// jobs would have cost, as far as that is known.
type Savings struct{ Jobs, Saved int64 }

// AddRecord adds a record if it is of a job that ended with another job's answer.
func (s *Savings) AddRecord(c *Record) {
	if c.Outcome != Reused {
		return
	}
	s.Jobs++
	if millionths, ok := ParseMoney(c.Saved); ok {
		s.Saved += millionths
	}
}

// Text returns the number of jobs, and the money as records write it. saved is "" if there are no jobs.
func (s *Savings) Text() (jobs int64, saved string) {
	if s.Jobs == 0 {
		return 0, ""
	}
	return s.Jobs, Money(s.Saved)
}

// Plus adds other savings.
func (s *Savings) Plus(other Savings) { s.Jobs, s.Saved = s.Jobs+other.Jobs, s.Saved+other.Saved }

// Add adds the price of a call as the call was billed. It ignores a price that cannot be read: weir writes no such
// price.
func (s *Spending) Add(price string, billed deadletter.Billed) {
	millionths, ok := ParseMoney(price)
	if !ok {
		return
	}
	switch billed {
	case deadletter.BilledYes:
		s.Spent += millionths
	case deadletter.BilledUnknown:
		s.InDoubt += millionths
	case deadletter.NotBilled:
	}
}

// AddRecord adds a record's call.
func (s *Spending) AddRecord(c *Record) { s.Add(c.Price, c.Billed) }

// ParseMoney parses what Money wrote, exactly.
func ParseMoney(text string) (millionths int64, ok bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	if len(fraction) > 6 {
		return 0, false
	}
	units, err := strconv.ParseUint(whole, 10, 43)
	rest, restErr := strconv.ParseUint((fraction + "000000")[:6], 10, 32)
	if err != nil || restErr != nil {
		return 0, false
	}
	return int64(units*1e6 + rest), true
}

// Plus adds the money of other calls.
func (s *Spending) Plus(other Spending) {
	s.Spent, s.InDoubt = s.Spent+other.Spent, s.InDoubt+other.InDoubt
}

// Text writes both amounts as records write money.
func (s *Spending) Text() (spent, inDoubt string) { return Money(s.Spent), Money(s.InDoubt) }
