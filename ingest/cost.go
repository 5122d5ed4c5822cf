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

// Cost says what a call takes: the sum of its terms. A Cost without terms is one unit a call. A price is a Cost in
// millionths of the currency unit. It is immutable, and its methods are safe for concurrent use.
type Cost []Term

// Term is one part of a Cost: a number times a weight, rounded up to a whole unit. The number is estimated before the
// call, and may be settled by the call's answer.
type Term struct {
	From   Source // the estimate: a number, or a place in the job
	Settle Source // the place in the answer that has the number of what the call really took; none: the estimate is right
	Weight Weight
	// Default is the estimate for a job that has nothing at From. Without one, which NoDefault says, such a job is
	// refused.
	Default   int64
	NoDefault bool
	Max       int64 // largest estimate that a job may ask for; 0: no bound
	Learn     int   // percentile of recent settled numbers that replaces a larger estimate; 0: none
}

// Source is where a number is found: a header, a JSON pointer (RFC 6901) into a body, or else Number itself. In an
// answer, the places in Or follow: the first place that has a number counts. A Source is comparable.
type Source struct {
	Number  int64
	Header  string
	Pointer string
	Or      [MostPlaces - 1]Place // the zero Place ends them
}

// Place is a header, or a JSON pointer into a body.
type Place struct{ Header, Pointer string }

// MostPlaces bounds the places where an answer may have one number.
const MostPlaces = 4

// IsPlace reports whether the source is a header or a place in a body.
func (s Source) IsPlace() bool { return s.Header != "" || s.Pointer != "" }

// Places passes the source's places in their order, none for a number.
func (s Source) Places() iter.Seq[Place] {
	return func(yield func(Place) bool) {
		for at, i := (Place{s.Header, s.Pointer}), 0; at != (Place{}) && yield(at) && i < len(s.Or); i++ {
			at = s.Or[i]
		}
	}
}

// Weight is a fraction that a number is multiplied by. The zero value is one.
type Weight struct{ Num, Den int64 }

// MostUnits is the largest cost: exact in Lua, and far from overflowing a sum.
const MostUnits = 1 << 52

// MostPointers is how many places in an answer's body may settle or count the calls of an api.
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

// Times returns the product of two weights in lowest terms. ok is false if it has no exact form.
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

// FromHeader returns a cost that a header of the job holds: 1 if the job does not have it.
func FromHeader(name string) Cost { return Cost{{From: Source{Header: name}, Default: 1}} }

// FromPointer returns a cost that the job's body holds.
func FromPointer(pointer string) Cost {
	return Cost{{From: Source{Pointer: pointer}, NoDefault: true}}
}

// SettledBy returns the cost with all terms settled by a place in the answer.
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

// Settles reports whether answers say what their calls really took.
func (c Cost) Settles() bool {
	for i := range c {
		if c[i].Settle.IsPlace() {
			return true
		}
	}
	return false
}

// Varies reports whether jobs have different estimates.
func (c Cost) Varies() bool {
	for i := range c {
		if c[i].From.IsPlace() {
			return true
		}
	}
	return false
}

// Reads reports whether a job carries a part of its cost in this header.
func (c Cost) Reads(header string) bool {
	for i := range c {
		if strings.EqualFold(c[i].From.Header, header) {
			return true
		}
	}
	return false
}

// Fixed reports whether every call takes the same, which is Usual.
func (c Cost) Fixed() bool { return !c.Settles() && !c.Varies() }

// Usual returns the estimate for a job that leaves everything to the configuration: 1 for what such a job would lack.
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

// Numbers returns the estimated number of each term for a job, in a slice of the terms' length.
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

// Sum returns the units of a call with these numbers, which must be as many as the terms.
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

// Of returns how many units a job is estimated to take.
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

// missing returns the estimate of a job that does not say one.
func (t *Term) missing(why string) (int64, error) {
	if t.NoDefault {
		return 0, fmt.Errorf("%s", why)
	}
	return t.Default, nil
}

// whole reads a number of a job. A job that says 0 says that it costs nothing; only a term with a weight or an answer
// that settles it may.
func (t *Term) whole(text, where string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	least := int64(1)
	if t.Weight != (Weight{}) || t.Settle.IsPlace() {
		least = 0
	}
	if err != nil || n < least || n > MostUnits {
		return 0, fmt.Errorf("the cost in %s is not a whole number from %d", where, least)
	}
	return n, nil
}

// Guess returns the units of a job of which only the headers are known.
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
	Limit string // the name of the limit; "" for the price of a call, if no budget bounds it
	From  Cost
	Most  int64
}

// checkCosts refuses a job whose cost cannot be read or exceeds a limit. Such a job would wait forever and block its
// key.
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
