package ingest

import (
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// Cost says how many units a call takes: the sum of its terms. Without terms a call takes one unit. A price is a Cost
// in millionths of the currency unit. A Cost is immutable, and its methods are safe for concurrent use.
type Cost []Term

// Term is one part of a Cost: a number times a weight, rounded up to a whole unit. The number is an estimate before the
// call. The call's answer may replace it.
type Term struct {
	From   Source // a number, or the place in the job that has the estimate
	Settle Source // the place in the answer that has the final number; the zero Source keeps the estimate
	Weight Weight
	// Default is the estimate for a job that has nothing at From. If NoDefault is set, such a job is refused.
	Default   int64
	NoDefault bool
	Max       int64 // largest estimate that a job may ask for; 0: no bound
	Learn     int   // percentile of recent final numbers that replaces a larger estimate; 0: none
}

// Source says where a number is: in a header, at a JSON pointer (RFC 6901) into a body, or in Number itself. If the
// number is in an answer, the field Or may list more places: the first place that has a number counts. A Source is
// comparable.
type Source struct {
	Number  int64
	Header  string
	Pointer string
	Or      [MostPlaces - 1]Place // the first zero Place ends the list
}

// Place is a header, or a JSON pointer into a body.
type Place struct{ Header, Pointer string }

// MostPlaces bounds the places that one Source can name.
const MostPlaces = 4

// IsPlace reports whether the source is a header or a place in a body.
func (s Source) IsPlace() bool { return s.Header != "" || s.Pointer != "" }

// Places yields the source's places in order. A source that is a number has none.
func (s Source) Places() iter.Seq[Place] {
	return func(yield func(Place) bool) {
		for at, i := (Place{s.Header, s.Pointer}), 0; at != (Place{}) && yield(at) && i < len(s.Or); i++ {
			at = s.Or[i]
		}
	}
}

// Weight is a fraction that a number is multiplied by. The zero value is one.
type Weight struct{ Num, Den int64 }

// MostUnits is the largest cost. Lua represents it exactly, and sums of costs stay far below an overflow.
const MostUnits = 1 << 52

// MostPointers bounds the JSON pointers into answers that settle or count the calls of one api.
const MostPointers = 64

// Of returns n times the weight, rounded up, and at most MostUnits. n must not be negative.
func (w Weight) Of(n int64) int64 {
	if w.Num == 0 && w.Den == 0 || w.Num == w.Den {
		return min(n, MostUnits)
	}
	hi, lo := bits.Mul64(uint64(n), uint64(w.Num))
	if hi >= uint64(w.Den) {
		return MostUnits
	}
	units, rest := bits.Div64(hi, lo, uint64(w.Den))
	if rest > 0 {
		units++
	}
	return int64(min(units, MostUnits))
}

// Times returns the weight times num/den, in lowest terms. ok is false if the product does not fit an int64 fraction.
func (w Weight) Times(num, den int64) (product Weight, ok bool) {
	if w == (Weight{}) {
		w = Weight{1, 1}
	}
	a, b := divisor(w.Num, den), divisor(num, w.Den)
	n, m := bits.Mul64(uint64(w.Num/a), uint64(num/b))
	d, e := bits.Mul64(uint64(w.Den/b), uint64(den/a))
	if n > 0 || d > 0 || m > math.MaxInt64 || e > math.MaxInt64 {
		return Weight{}, false
	}
	c := divisor(int64(m), int64(e))
	return Weight{int64(m) / c, int64(e) / c}, true
}

// divisor returns the greatest common divisor of a and b, which is b if a is 0. b must be positive.
func divisor(a, b int64) int64 {
	for a != 0 {
		a, b = b%a, a
	}
	return b
}

// Units returns a cost of n units a call.
func Units(n int64) Cost { return Cost{{From: Source{Number: n}}} }

// FromHeader returns a cost that a header of the job names. It is 1 if the job lacks the header.
func FromHeader(name string) Cost { return Cost{{From: Source{Header: name}, Default: 1}} }

// FromPointer returns a cost that the job's body names. A job without it is refused.
func FromPointer(pointer string) Cost {
	return Cost{{From: Source{Pointer: pointer}, NoDefault: true}}
}

// SettledBy returns a copy of the cost in which each term is settled by s, a place in the answer.
func (c Cost) SettledBy(s Source) Cost {
	if c == nil {
		c = Units(1)
	}
	settled := make(Cost, len(c))
	for i, t := range c {
		t.Settle = s
		settled[i] = t
	}
	return settled
}

// Settles reports whether answers settle any term of the cost.
func (c Cost) Settles() bool {
	for i := range c {
		if c[i].Settle.IsPlace() {
			return true
		}
	}
	return false
}

// Varies reports whether the estimate depends on the job.
func (c Cost) Varies() bool {
	for i := range c {
		if c[i].From.IsPlace() {
			return true
		}
	}
	return false
}

// Reads reports whether a job names part of its cost in this header.
func (c Cost) Reads(header string) bool {
	for i := range c {
		if strings.EqualFold(c[i].From.Header, header) {
			return true
		}
	}
	return false
}

// Fixed reports whether every call takes the same number of units, which Usual returns.
func (c Cost) Fixed() bool { return !c.Settles() && !c.Varies() }

// Usual returns the estimate for a job that names no cost. It counts 1 for a term without a default.
func (c Cost) Usual() int64 {
	if c == nil {
		return 1
	}
	sum := int64(0)
	for i := range c {
		switch t := &c[i]; {
		case !t.From.IsPlace():
			sum += t.Weight.Of(t.From.Number)
		case t.NoDefault:
			sum += t.Weight.Of(1)
		default:
			sum += t.Weight.Of(t.Default)
		}
	}
	return min(sum, MostUnits)
}

// Numbers returns the estimated number of each term for a job, before the weights.
func (c Cost) Numbers(j *Job) ([]int64, error) {
	numbers := make([]int64, len(c))
	for i := range c {
		n, err := c[i].estimate(j)
		if err != nil {
			return nil, err
		}
		numbers[i] = n
	}
	return numbers, nil
}

// Sum returns the units of a call with these numbers, one for each term.
func (c Cost) Sum(numbers []int64) int64 {
	if c == nil {
		return 1
	}
	sum := int64(0)
	for i := range c {
		sum += c[i].Weight.Of(numbers[i])
	}
	return min(sum, MostUnits)
}

// Of returns the estimated units of a job.
func (c Cost) Of(j *Job) (int64, error) {
	numbers, err := c.Numbers(j)
	if err != nil {
		return 0, err
	}
	return c.Sum(numbers), nil
}

// estimate returns a term's number for a job.
func (t *Term) estimate(j *Job) (int64, error) {
	n, where := t.From.Number, "from"
	switch {
	case t.From.Header != "":
		value, found, err := headerValue(j.Header, t.From.Header)
		if err != nil {
			return 0, err
		}
		if !found {
			return t.missing("the job has no header " + t.From.Header)
		}
		where = "header " + t.From.Header
		if n, err = t.whole(value, where); err != nil {
			return 0, err
		}
	case t.From.Pointer != "":
		value, err := Pointed(j.Body, t.From.Pointer)
		if err != nil && !t.NoDefault || value == nil && err == nil {
			return t.missing("the body has nothing at " + t.From.Pointer)
		}
		if err != nil {
			return 0, err
		}
		number, ok := value.(json.Number)
		if !ok {
			return 0, fmt.Errorf("what %s points to is not a number", t.From.Pointer)
		}
		where = t.From.Pointer
		if n, err = t.whole(number.String(), where); err != nil {
			return 0, err
		}
	}
	if t.Max > 0 && n > t.Max {
		return 0, fmt.Errorf("the cost in %s is more than %d", where, t.Max)
	}
	return n, nil
}

// missing returns the default, or an error that says why if the term has none.
func (t *Term) missing(why string) (int64, error) {
	if t.NoDefault {
		return 0, fmt.Errorf("%s", why)
	}
	return t.Default, nil
}

// whole parses a number that a job names. Zero is allowed only if the term has a weight or is settled by the answer.
func (t *Term) whole(text, where string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	least := int64(1)
	if t.Weight != (Weight{}) || t.Settle.IsPlace() {
		least = 0
	}
	if err != nil || n < least || n > MostUnits {
		return 0, fmt.Errorf("the cost in %s is not a whole number from %d to %d", where, least, int64(MostUnits))
	}
	return n, nil
}

// Guess estimates the units of a job by its headers alone.
func (c Cost) Guess(h nats.Header) int64 {
	if c == nil {
		return 1
	}
	numbers := make([]int64, len(c))
	for i := range c {
		t := &c[i]
		numbers[i] = t.From.Number
		if !t.From.IsPlace() {
			continue
		}
		if numbers[i] = t.Default; t.NoDefault {
			numbers[i] = 1
		}
		if value, found, err := headerValue(h, t.From.Header); found && err == nil {
			if n, err := strconv.ParseInt(value, 10, 64); err == nil && n >= 0 {
				numbers[i] = n
			}
		}
	}
	return c.Sum(numbers)
}

// CostBound is the most that a job may cost at one limit of its api. A job that costs more could never be called.
type CostBound struct {
	Limit string // the limit's name; "" for the price of a call that no budget bounds
	From  Cost
	Most  int64
}

// checkCosts refuses a job whose cost cannot be read or exceeds a limit. Such a job would block its key forever.
func (j *Job) checkCosts(rule *Rule) *Refusal {
	for i := range rule.Costs {
		bound := &rule.Costs[i]
		cost, err := bound.From.Of(j)
		of := "limit " + bound.Limit
		if bound.Limit == "" {
			of = "price"
		}
		if err != nil {
			return refuse(Invalid, "%s: %v", of, err)
		}
		if cost > bound.Most {
			return refuse(Invalid, "%s: the job's cost can never pass: the limit lets at most %d through at once", of, bound.Most)
		}
	}
	return nil
}
