package ledger

import (
	"strconv"
	"strings"

	"weir/deadletter"
)

// Spending is money in millionths of the currency: of calls that were billed, and of those of which nobody knows. Whatever tells what
// was spent adds it up here, so that it is the same number everywhere. A budget counts both, and what calls under way may cost.
type Spending struct{ Spent, InDoubt int64 }

// Add adds a call by how it ended. A price that cannot be read counts for nothing: weir writes none such.
func (s *Spending) Add(price string, billed deadletter.Billed) {
	millionths, ok := parseMoney(price)
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

// AddRecord adds the call of a record.
func (s *Spending) AddRecord(c *Record) { s.Add(c.Price, c.Billed) }

// parseMoney reads what Money wrote, exactly.
func parseMoney(text string) (millionths int64, ok bool) {
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

// Plus adds other calls' money.
func (s *Spending) Plus(other Spending) {
	s.Spent, s.InDoubt = s.Spent+other.Spent, s.InDoubt+other.InDoubt
}

// Text writes both as records tell money.
func (s *Spending) Text() (spent, inDoubt string) { return Money(s.Spent), Money(s.InDoubt) }
