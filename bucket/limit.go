package bucket

import (
	"strconv"
	"time"
)

// Micros is a point in time in microseconds since 1970-01-01 UTC. Microseconds, not nanoseconds, because the same
// arithmetic runs in Lua, whose numbers are exact only below 2^53: microseconds stay exact until the year 2255.
type Micros int64

// MicrosOf converts a wall-clock time; precision below a microsecond is dropped.
func MicrosOf(t time.Time) Micros { return Micros(t.UnixMicro()) }

// Time converts back, in UTC.
func (m Micros) Time() time.Time { return time.UnixMicro(int64(m)).UTC() }

// Add returns the time d later, d rounded down to whole microseconds.
func (m Micros) Add(d time.Duration) Micros { return m + Micros(d/time.Microsecond) }

// Until returns the duration from m to later.
func (m Micros) Until(later Micros) time.Duration { return time.Duration(later-m) * time.Microsecond }

// Rate is Count units per Per, of which Burst may leave together after idling. Count and Per are whole numbers in
// lowest terms as configured: 0.5/s is 1 per 2 s, 300/3h is 300 per 3 h. All three are at least 1.
type Rate struct {
	Count  int64
	Per    time.Duration
	Burst  int64
	Counts Counting // empty: ByWindow, or ByTokens where Burst is above Count
}

// Counting is how an api counts the calls of a rate. A switch over it names every one, as one over Kind does.
type Counting string

// How apis count. The words are the configuration's.
const (
	// ByWindow means never more than Count units in any period of Per: a burst is earned by slower calls around it.
	ByWindow Counting = "window"
	// ByTokens means never more than Burst + Count/Per × time units in any time: what a token bucket of the api's lets pass.
	ByTokens Counting = "token_bucket"
)

// Counted is how the rate is counted, also where it does not say.
func (r Rate) Counted() Counting {
	switch {
	case r.Counts != "":
		return r.Counts
	case r.Burst > r.Count: // no window has room for it
		return ByTokens
	}
	return ByWindow
}

// Window says how a quota's period is laid on the time line.
type Window string

const (
	// Calendar periods start at the hour, midnight, Monday or the first of the month in the quota's zone.
	Calendar Window = "calendar"
	// Sliding means never more than Count in any period of that length.
	Sliding Window = "sliding"
	// Fixed periods start at multiples of Per since 1970-01-01 UTC.
	Fixed Window = "fixed"
)

// Unit is a calendar period.
type Unit string

// The calendar periods. A week starts on Monday (ISO 8601).
const (
	Hour  Unit = "hour"
	Day   Unit = "day"
	Week  Unit = "week"
	Month Unit = "month"
)

// Quota is a count of units per period.
type Quota struct {
	Count  int64
	Window Window
	Per    time.Duration  // for Sliding and Fixed
	Unit   Unit           // for Calendar
	Zone   *time.Location // for Calendar; never nil there, never time.Local
}

// Exhausted says what becomes of a job whose budget is spent.
type Exhausted string

const (
	// Hold keeps the job queued until the next period.
	Hold Exhausted = "hold"
	// DeadLetter ends it as a letter with reason over_budget.
	DeadLetter Exhausted = "dead_letter"
)

// CostSource says where the units one job takes from a limit come from. The zero value is one unit a call.
type CostSource struct {
	Constant int64  // when above zero
	Header   string // a job header that holds a whole number
	Pointer  string // a JSON pointer (RFC 6901) into the job's body

	// Settle names where the response tells the units really used: the difference is charged or given back.
	SettleHeader  string
	SettlePointer string
}

// Kind says what a Limit counts. A switch over kinds names every one of them and has no default, so that the linter
// (exhaustive) finds the places that a new kind has to be told to.
type Kind string

// The kinds of limits, by the words of the configuration.
const (
	KindRate     Kind = "rate"
	KindQuota    Kind = "quota"
	KindInFlight Kind = "in_flight"
	KindBudget   Kind = "budget"
)

// Kinds returns all kinds of limits, in the order in which they are told.
func Kinds() []Kind { return []Kind{KindRate, KindQuota, KindInFlight, KindBudget} }

// Limit is one limit shared by all keys of an api. Exactly one of Rate, Quota, InFlight and Budget is set.
type Limit struct {
	Name     string
	Rate     *Rate
	Quota    *Quota
	InFlight int64
	Budget   *Budget
	Cost     CostSource
	Shadow   bool // counts what it would have held, holds nothing
}

// Kind returns what the limit counts, by the field that is set. It panics for a limit that has none: Rules.Validate refuses such
// a limit. Reading is all it does, so it is safe for concurrent use.
func (l *Limit) Kind() Kind {
	switch {
	case l.Rate != nil:
		return KindRate
	case l.Quota != nil:
		return KindQuota
	case l.InFlight != 0:
		return KindInFlight
	case l.Budget != nil:
		return KindBudget
	}
	panic("bucket: limit " + strconv.Quote(l.Name) + " is of no kind")
}

// Budget is an amount of money per period, in millionths of the currency unit so that sums are exact.
type Budget struct {
	Quota // Count is millionths of the currency unit

	OnExhausted Exhausted
}

// KeyLimits are what one key's own bucket obeys, overrides applied.
type KeyLimits struct {
	Rate     Rate
	Capacity int64         // unfinished jobs, the ones being called too
	MaxWait  time.Duration // 0: no bound
	InFlight int64
}

// Admission is a limit checked when a job comes in, before it is queued.
type Admission struct {
	Rate      Rate
	Algorithm Algorithm
	// SoftPercent lets this much more than the rate in, marked and told, before anything is refused.
	SoftPercent int64
	// Elastic lets a key borrow what the others leave free.
	Elastic bool
}

// Algorithm is how an admission limit counts.
type Algorithm string

// The admission algorithms.
const (
	TokenBucket          Algorithm = "token_bucket"
	LeakyBucket          Algorithm = "leaky_bucket"
	FixedWindow          Algorithm = "fixed_window"
	SlidingLog           Algorithm = "sliding_log"
	SlidingWindowCounter Algorithm = "sliding_window"
)

// Override replaces parts of an api's KeyLimits for the keys that match Pattern (exact, or with * for any run of
// characters). A nil field keeps the api's value.
type Override struct {
	Pattern  string
	Rate     *Rate
	Capacity *int64
	MaxWait  *time.Duration
	InFlight *int64
}

// Rules are all limits of one api.
type Rules struct {
	Key       KeyLimits // every key's own bucket
	Overrides []Override
	Shared    []Limit
	Admit     []Admission
	// TenantUntil ends the part of a key that names its tenant: keys of one tenant share a turn at the shared limits. "" where
	// every key takes turns by itself.
	TenantUntil string
	Headroom    int64         // percent to stay below every limit, 0 to 99
	Jitter      time.Duration // how much later than planned a call may arrive
	// Lease is how long a call may stay unsettled before its shared in-flight permit is taken back: the api's timeout
	// and a margin. 0: DefaultLease.
	Lease time.Duration
}

// DefaultLease is the Lease of Rules that name none.
const DefaultLease = 2 * time.Minute
