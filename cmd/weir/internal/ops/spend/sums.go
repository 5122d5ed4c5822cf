package spend

import (
	"math"
	"strings"
	"time"
	"unique"

	"weir/bucket"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/dispatcher/ledger"
)

// Sums holds what every call of the ledger cost and took, added up by its time, so that an answer reads no record. The
// index of jobs feeds it with the records that it reads anyway. It is not safe for concurrent use.
//
// Each sum covers one span of time. For an api or a limit that is a minute, and in days before yesterday a quarter of
// an hour. For a key it is a quarter of an hour. The spans follow the calendar in UTC, and each call is in one, so sums
// of whole spans are exact. A question that begins within a span is answered from the beginning of that span on.
//
// # Memory
//
// A sum takes at most 128 bytes, that of a key 256 and the key, and a usage 256 and 64 for each name. In the 62 days of
// the ledger an api and each of its limits take at most 1.1 MB, and a key 1.6 MB if it is called in every quarter of an
// hour. NewSums bounds all of them together. At the bound Sums gives up the following, in this order, each from the
// oldest day that still has it. The answers say so:
//
//  1. the quarters of an hour of keys: the day has one sum of each key, 16 KB in 62 days;
//  2. the minutes: the day has quarters of an hour;
//  3. the keys: the day has sums of apis only, and its calls are listed without their keys;
//  4. the day itself. The newest day stays.
type Sums struct {
	most, bytes int
	days        map[dayNumber]*day
	newest      dayNumber // the last day on which a record was stored
	// Days up to these have one sum of each key, no minutes, no keys, nothing.
	merged, coarse, keyless, forgotten dayNumber

	reached time.Time // every record that was stored then or later is added
	whole   bool      // and all before, as far as the ledger goes back
	begins  time.Time // the ledger's beginning; zero: nothing was ever removed from it
}

// dayNumber counts days of UTC since 1970.
type dayNumber int32

const (
	dayLong     = 24 * time.Hour
	quarterLong = usePart
	perQuarter  = int16(quarterLong / time.Minute)
	noDay       = dayNumber(math.MinInt32)
)

func dayOf(t time.Time) dayNumber {
	const long = int64(dayLong / time.Second)
	seconds := t.Unix()
	return dayNumber((seconds - (seconds%long+long)%long) / long) //nolint:gosec // of a year with four digits
}

func (d dayNumber) begin() time.Time { return time.Unix(int64(d)*int64(dayLong/time.Second), 0).UTC() }

func (d dayNumber) at(minute int16) time.Time {
	return d.begin().Add(time.Duration(minute) * time.Minute)
}

// minuteOf returns the minute of the day in which the span of a time begins.
func minuteOf(t time.Time, grain func(dayNumber) time.Duration) int16 {
	return int16(floor(t, grain).Sub(dayOf(t).begin()) / time.Minute) //nolint:gosec // of one day
}

// day has the sums of one day.
type day struct {
	calls   map[callPlace]calls
	limits  map[limitPlace]taken
	keys    map[keyPlace]calls
	missing int // records that were lost or cannot be read, by when they were stored
}

// callPlace is the place of a sum of an api: the minute of the day in which its span begins.
type callPlace struct {
	api    unique.Handle[string]
	minute int16
}

type limitPlace struct {
	limitName
	minute int16
}

// limitName names a limit. One of an account has no api, because all apis of the account take from it.
type limitName struct{ api, limit unique.Handle[string] }

// limitOf returns the name of a limit that an api has. Only in a limit of an account there is a slash.
func limitOf(api, limit string) limitName {
	if strings.Contains(limit, "/") {
		api = ""
	}
	return limitName{unique.Make(api), unique.Make(limit)}
}

type keyPlace struct {
	api, key unique.Handle[string]
	minute   int16
}

// calls is a sum of calls.
type calls struct {
	n      int64 // that were billed, or are in doubt
	money  ledger.Spending
	saving ledger.Savings // by jobs that were not called
	usage  map[string]int64
}

// taken is what calls took from a limit.
type taken struct {
	money  ledger.Spending
	units  int64 // if the limit has units
	priced int64 // if it is a budget; the same, unless a record lacks the units
}

// What a sum takes at its place, in bytes: a map has free room.
const (
	placeBytes = 128
	keyBytes   = 256 // and the key
	usageBytes = 256 // if the calls have a usage, and
	nameBytes  = 64  // for each of its names
)

// NewSums returns sums that take no more than most bytes. They know nothing until Begin.
func NewSums(most int) *Sums {
	s := &Sums{most: most}
	s.Begin(time.Time{})
	return s
}

// Begin forgets everything. From then on every record is added that is stored behind the ledger's end at this time; the
// ones before are added later, the newest first.
func (s *Sums) Begin(end time.Time) {
	*s = Sums{most: s.most, days: map[dayNumber]*day{}, newest: noDay, merged: noDay, coarse: noDay, keyless: noDay, forgotten: noDay, reached: end}
}

// Reached says that every record that was stored at a time or later has been added.
func (s *Sums) Reached(stored time.Time) { s.reached = stored }

// Complete says that all records before have been added too, as far as the ledger goes back.
func (s *Sums) Complete() { s.whole = true }

// Whole reports whether Complete was called since Begin.
func (s *Sums) Whole() bool { return s.whole }

// Trim says when the ledger begins, zero if nothing was ever removed from it. It forgets sums that may include older
// calls.
func (s *Sums) Trim(begins time.Time) {
	if !begins.After(s.begins) {
		return // nothing was removed, or this was said before a later removal
	}
	s.begins = begins
	for d := range s.days {
		if d < dayOf(begins) {
			s.forget(d)
		}
	}
}

// Missing counts records that are lost or cannot be read, near a time by the server.
func (s *Sums) Missing(n int, stored time.Time) {
	if d := s.day(dayOf(stored)); d != nil {
		d.missing += n
	}
}

// day returns a day's sums, nil if the day is forgotten.
func (s *Sums) day(number dayNumber) *day {
	d := s.days[number]
	if d == nil && number > s.forgotten {
		d = &day{calls: map[callPlace]calls{}, limits: map[limitPlace]taken{}, keys: map[keyPlace]calls{}}
		s.days[number] = d
	}
	return d
}

// Add adds a record, in any order. A record must be added once.
func (s *Sums) Add(c *ledger.Record) {
	if stored := dayOf(c.Stored); stored > s.newest {
		s.newest = stored
		s.coarsenTo(stored - 2)
	}
	s.addCall(c)
	s.addLimits(c)
	for s.bytes > s.most && s.giveUp() {
	}
}

// callsOf returns what one call adds to sums, and false if that is nothing.
func callsOf(c *ledger.Record) (of calls, some bool) {
	of.usage = c.Usage
	of.saving.AddRecord(c)
	if of.money.AddRecord(c); of.money != (ledger.Spending{}) && !c.Polled && !c.Pack.Follows() { // neither is a call
		of.n = 1
	}
	return of, of.money != (ledger.Spending{}) || of.saving != (ledger.Savings{}) || len(c.Usage) > 0
}

func (s *Sums) addCall(c *ledger.Record) {
	of, some := callsOf(c)
	number := dayOf(c.Started)
	d := s.day(number)
	if !some || d == nil {
		return
	}
	api := unique.Make(c.API)
	s.bytes += put(d.calls, callPlace{api, minuteOf(c.Started, s.grain)}, of, placeBytes)
	if number > s.keyless {
		s.bytes += put(d.keys, keyPlace{api, unique.Make(c.Key), minuteOf(c.Started, s.keyGrain)}, of, keyBytes+len(c.Key))
	}
}

func (s *Sums) addLimits(c *ledger.Record) {
	at := limitstate.ChargedAt(c).Time()
	number := dayOf(at)
	d := s.day(number)
	if d == nil {
		return
	}
	var money ledger.Spending
	money.AddRecord(c)
	for _, name := range c.Limits {
		units, _ := c.Took(&bucket.Limit{Name: name})
		priced, _ := c.Took(&bucket.Limit{Name: name, Budget: &bucket.Budget{}})
		of := taken{money, units, priced}
		if of == (taken{}) {
			continue
		}
		s.bytes += putTaken(d.limits, limitPlace{limitOf(c.API, name), minuteOf(at, s.grain)}, of)
	}
}

// put adds calls to those of a place. It returns the bytes that this takes.
func put[P comparable](sums map[P]calls, at P, of calls, bytes int) (more int) {
	sum, had := sums[at]
	if !had {
		more = bytes
	}
	more -= sum.usageBytes()
	sum.plus(of)
	sums[at] = sum
	return more + sum.usageBytes()
}

func putTaken(sums map[limitPlace]taken, at limitPlace, of taken) (more int) {
	sum, had := sums[at]
	if !had {
		more = placeBytes
	}
	sum.money.Plus(of.money)
	sum.units, sum.priced = sum.units+of.units, sum.priced+of.priced
	sums[at] = sum
	return more
}

// worth is what calls cost, including what is in doubt.
func (c *calls) worth() int64 { return c.money.Spent + c.money.InDoubt }

func (c *calls) usageBytes() int {
	if len(c.usage) == 0 {
		return 0
	}
	return usageBytes + nameBytes*len(c.usage)
}

// plus adds other calls.
func (c *calls) plus(of calls) {
	c.n += of.n
	c.money.Plus(of.money)
	c.saving.Plus(of.saving)
	use(&c.usage, of.usage)
}

// coarsenTo gives up the minutes of days up to one.
func (s *Sums) coarsenTo(last dayNumber) {
	for number, d := range s.days {
		if number > s.coarse && number <= last {
			s.coarsen(d)
		}
	}
	s.coarse = max(s.coarse, last)
}

func (s *Sums) coarsen(d *day) {
	was := *d
	d.calls, d.limits = map[callPlace]calls{}, map[limitPlace]taken{}
	for at, of := range was.calls {
		s.bytes -= placeBytes + of.usageBytes()
		at.minute -= at.minute % perQuarter
		s.bytes += put(d.calls, at, of, placeBytes)
	}
	for at, of := range was.limits {
		s.bytes -= placeBytes
		at.minute -= at.minute % perQuarter
		s.bytes += putTaken(d.limits, at, of)
	}
}

// giveUp gives up the next sums in the order above. It reports false if only sums are left that must stay.
func (s *Sums) giveUp() bool {
	if number, some := s.oldest(s.merged); some {
		s.mergeKeys(s.days[number])
		s.merged = number
		return true
	}
	if number, some := s.oldest(s.coarse); some {
		s.coarsenTo(number)
		return true
	}
	if number, some := s.oldest(s.keyless); some {
		s.dropKeys(s.days[number])
		s.keyless = number
		return true
	}
	if number, some := s.oldest(s.forgotten); some && len(s.days) > 1 {
		s.forget(number)
		s.forgotten = number
		return true
	}
	return false
}

// oldest returns the oldest day behind another one.
func (s *Sums) oldest(after dayNumber) (oldest dayNumber, some bool) {
	for number := range s.days {
		if number > after && (!some || number < oldest) {
			oldest, some = number, true
		}
	}
	return oldest, some
}

func (s *Sums) mergeKeys(d *day) {
	was := d.keys
	d.keys = map[keyPlace]calls{}
	for at, of := range was {
		s.bytes -= keyBytes + len(at.key.Value()) + of.usageBytes()
		at.minute = 0
		s.bytes += put(d.keys, at, of, keyBytes+len(at.key.Value()))
	}
}

func (s *Sums) dropKeys(d *day) {
	for at, of := range d.keys {
		s.bytes -= keyBytes + len(at.key.Value()) + of.usageBytes()
	}
	d.keys = nil
}

func (s *Sums) forget(number dayNumber) {
	d := s.days[number]
	s.dropKeys(d)
	for _, of := range d.calls {
		s.bytes -= placeBytes + of.usageBytes()
	}
	s.bytes -= placeBytes * len(d.limits)
	delete(s.days, number)
}

// late is how much later a call's time may be than when its record was stored, by clocks of different machines: a call
// that a former process left behind counts some seconds after its earliest start.
const late = 10 * time.Second

// Since returns from when on all calls are added; zero if all that ever were.
func (s *Sums) Since(now time.Time) (since time.Time) {
	switch {
	case s.whole:
	case s.reached.IsZero():
		since = ceil(now, s.grain) // nothing is added yet
	default:
		since = ceil(s.reached.Add(late), s.grain)
	}
	if !s.begins.IsZero() {
		since = latest(since, ceil(s.begins.Add(late), s.grain))
	}
	if s.forgotten != noDay {
		since = latest(since, (s.forgotten + 1).begin())
	}
	return since
}

// grain returns how long the spans of apis and limits are on a day.
func (s *Sums) grain(number dayNumber) time.Duration {
	if number <= s.coarse {
		return quarterLong
	}
	return time.Minute
}

// keyGrain returns how long the spans of keys are on a day.
func (s *Sums) keyGrain(number dayNumber) time.Duration {
	if number <= s.merged {
		return dayLong
	}
	return quarterLong
}

// floor returns the beginning of the span that a time is in.
func floor(t time.Time, grain func(dayNumber) time.Duration) time.Time {
	return t.UTC().Truncate(grain(dayOf(t)))
}

// ceil returns the beginning of the first span that does not begin before a time.
func ceil(t time.Time, grain func(dayNumber) time.Duration) time.Time {
	if begin := floor(t, grain); begin.Before(t) {
		return begin.Add(grain(dayOf(t)))
	}
	return t.UTC()
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
