package bucket

import (
	"math"
	"strconv"
	"time"

	"weir/ingest"
)

// Micros is a point in time in microseconds since 1970-01-01 UTC. It is not in nanoseconds because the same arithmetic
// runs in Lua, whose numbers are exact only below 2^53: microseconds stay exact until the year 2255.
type Micros int64

// Never is a time that never comes.
const Never = Micros(math.MaxInt64)

// MicrosOf converts a wall-clock time; precision below a microsecond is dropped.
func MicrosOf(t time.Time) Micros { return Micros(t.UnixMicro()) }

// Time converts back, in UTC.
func (m Micros) Time() time.Time { return time.UnixMicro(int64(m)).UTC() }

// Add returns the time d later, d rounded down to whole microseconds.
func (m Micros) Add(d time.Duration) Micros { return m + Micros(d/time.Microsecond) }

// Until returns the duration from m to later.
func (m Micros) Until(later Micros) time.Duration { return time.Duration(later-m) * time.Microsecond }

// Rate is Count units per Per. After idling, Burst of them may leave together. Count and Per are whole numbers: 0.5/s
// is 1 per 2 s, and 300/3h is 300 per 3 h. All three are at least 1.
type Rate struct {
	Count  int64
	Per    time.Duration
	Burst  int64
	Counts Counting // empty: ByWindow, or ByTokens if Burst is above Count
}

// Counting is how an api counts the calls of a rate. A switch over Counting must name every value, as a switch over
// Kind must.
type Counting string

// The ways in which apis count. The words are the configuration's.
const (
	// ByWindow means at most Count units in any period of Per. So a larger burst makes the calls around it slower.
	ByWindow Counting = "window"
	// ByTokens means at most Burst + Count/Per × t units in any time t, as a token bucket at the api lets pass.
	ByTokens Counting = "token_bucket"
)

// Counted returns Counts, or the default if Counts is empty.
func (r Rate) Counted() Counting {
	switch {
	case r.Counts != "":
		return r.Counts
	case r.Burst > r.Count: // no window has room for it
		return ByTokens
	}
	return ByWindow
}

// Window says how a quota's periods lie on the time line.
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

// Exhausted says what happens to a job when its budget is spent.
type Exhausted string

const (
	// Hold keeps the job queued until the next period.
	Hold Exhausted = "hold"
	// DeadLetter ends it as a letter with reason over_budget.
	DeadLetter Exhausted = "dead_letter"
)

// Kind says what a Limit counts. A switch over kinds must name every kind and have no default, so that the linter
// (exhaustive) finds every switch that lacks a new kind.
type Kind string

// The kinds of limits, by the words of the configuration.
const (
	KindRate     Kind = "rate"
	KindQuota    Kind = "quota"
	KindInFlight Kind = "in_flight"
	KindBudget   Kind = "budget"
)

// Kinds returns all kinds of limits, in the order in which they are reported.
func Kinds() []Kind { return []Kind{KindRate, KindQuota, KindInFlight, KindBudget} }

// Limit is one limit shared by all keys of an api. Exactly one of Rate, Quota, InFlight and Budget is set.
type Limit struct {
	Name     string
	Account  string // the account that sets the limit; "": the limit is of the api alone
	Rate     *Rate
	Quota    *Quota
	InFlight int64
	Budget   *Budget
	Cost     ingest.Cost // of a call; unused for a budget, which counts the price
	Share    int64       // this site's part of the vendor's limit, in percent; 0: the whole
	Shadow   bool        // counts the calls that it would have held, and holds none
	// Replica says that the limit counts the calls of one replica only. Such limits are in Rules.Replica.
	Replica bool
	// Left names the header of an answer that says how much of a rate or quota the vendor has left. LeftUntil names the
	// header that says until when. Both are optional (left.go).
	Left, LeftUntil ingest.Source
}

// Kind returns the limit's kind, by the field that is set. It panics if none is set; Rules.Validate refuses such a
// limit. It is safe for concurrent use.
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

// KeyLimits are the limits of one key's own bucket, overrides applied.
type KeyLimits struct {
	Rate     Rate
	Capacity int64         // unfinished jobs, including those being called
	MaxWait  time.Duration // 0: no bound
	InFlight int64
}

// Admission is a limit that is checked when a job comes in, before it is queued.
type Admission struct {
	Rate      Rate
	Algorithm Algorithm
	// SoftPercent is how much more than the limit is accepted before any job is refused, in percent of the limit. Such
	// jobs are marked and reported.
	SoftPercent int64
	// Elastic lets a key borrow what other keys leave free.
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
	Replica   []Limit // limits of one replica alone: only a Rate or InFlight, and each call counts as one
	Admit     []Admission
	// TenantUntil is the text that ends the tenant's name in a key. Keys of one tenant share a turn at the shared
	// limits. If it is "", every key takes turns by itself.
	TenantUntil string
	Weights     Weights       // of the priorities
	In          *Membership   // the api's account; nil for none
	Headroom    int64         // percent to stay below every limit, 0 to 99
	Jitter      time.Duration // how much later than planned a call may arrive
	// Lease is how long a call may stay unsettled before its shared in-flight permit is taken back: the api's timeout
	// and a margin. 0: DefaultLease.
	Lease time.Duration
	// Version orders the configurations that the rules come from: a later one has a greater Version, below 2^53. 0: not
	// known. An account ignores rules that are older than its own.
	Version int64
}

// DefaultLease is the Lease of Rules that name none.
const DefaultLease = 2 * time.Minute
