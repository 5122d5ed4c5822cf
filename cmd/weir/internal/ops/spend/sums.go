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

// Sums holds what all calls in the ledger cost and took from limits, added up by their times. So an answer needs to
// read no record. The index of jobs adds the records that it reads anyway. Sums is not safe for concurrent use.
//
// Each sum covers one span of time: for a key a quarter of an hour; for an api or a limit a minute, or, in days before
// yesterday, a quarter of an hour. Spans follow the calendar in UTC, and each call is in exactly one span, so sums of
// whole spans are exact. If a question begins within a span, the answer begins with that span.
//
// # Memory
//
// A sum takes at most 128 bytes. The sum of a key takes 256 bytes and the key. A usage takes 256 bytes more, and 64 for
// each of its names. In the 62 days of the ledger an api and each of its limits take at most 1.1 MB each. A key takes
// 1.6 MB if it is called in every quarter of an hour. NewSums bounds all sums together. At the bound Sums gives up the
// following, in this order, each from the oldest day that still has it. The answers say so:
//
//  1. the quarters of an hour of keys: the day then has one sum for each key, 16 KB in 62 days;
//  2. the minutes: the day then has quarters of an hour;
//  3. the keys: the day then has only sums of apis, and its calls are listed without their keys;
//  4. the day itself. The newest day stays.
type Sums struct {
	most, bytes int
	days        map[dayNumber]*day
	newest      dayNumber // the newest day on which a record was stored
	// The last day that has only one sum for each key, the last without minutes, the last without keys, and the last
	// that was dropped.
	merged, coarse, keyless, forgotten dayNumber

	reached time.Time // all records that were stored at or after this time were added
	whole   bool      // all earlier records that the ledger still has were added too
	begins  time.Time // when the ledger begins; zero: nothing was ever removed from it
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

// minuteOf returns the minute of the day at which the span of t begins.
func minuteOf(t time.Time, grain func(dayNumber) time.Duration) int16 {
	return int16(floor(t, grain).Sub(dayOf(t).begin()) / time.Minute) //nolint:gosec // of one day
}

// day holds the sums of one day.
type day struct {
	calls   map[callPlace]calls
	limits  map[limitPlace]taken
	keys    map[keyPlace]calls
	missing int // records that are lost or unreadable, by the day on which they were stored
}

// callPlace identifies a sum of an api. minute is the minute of the day at which the sum's span begins.
type callPlace struct {
	api    unique.Handle[string]
	minute int16
}

type limitPlace struct {
	limitName
	minute int16
}

// limitName identifies a limit. For a limit of an account, api is "", because all apis of the account take from it.
type limitName struct{ api, limit unique.Handle[string] }

// limitOf returns the identity of an api's limit. Only names of an account's limits contain a slash.
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
	n      int64 // calls that were billed, or are in doubt
	money  ledger.Spending
	saving ledger.Savings // from jobs that were not called
	usage  map[string]int64
}

// taken is what calls took from a limit.
type taken struct {
	money  ledger.Spending
	units  int64 // what a limit that counts units took
	priced int64 // what a budget took: equal to units, unless a record lacks them
}

// The memory of a sum, in bytes, including the free room of its map.
const (
	placeBytes = 128
	keyBytes   = 256 // and the key
	usageBytes = 256 // if the calls have a usage, and
	nameBytes  = 64  // for each of its names
)

// NewSums returns sums that take at most most bytes. They are empty until Begin.
func NewSums(most int) *Sums {
	s := &Sums{most: most}
	s.Begin(time.Time{})
	return s
}

// Begin removes everything. From then on the caller must add every record that is stored after end, and also the older
// records, newest first.
func (s *Sums) Begin(end time.Time) {
	*s = Sums{most: s.most, days: map[dayNumber]*day{}, newest: noDay, merged: noDay, coarse: noDay, keyless: noDay, forgotten: noDay, reached: end}
}

// Reached records that all records that were stored at or after stored have been added.
func (s *Sums) Reached(stored time.Time) { s.reached = stored }

// Complete records that all earlier records that the ledger still has have been added too.
func (s *Sums) Complete() { s.whole = true }

// Whole reports whether Complete was called since Begin.
func (s *Sums) Whole() bool { return s.whole }

// Trim drops days that may include calls whose records were removed from the ledger. begins is when the ledger begins;
// zero means that nothing was ever removed from it.
func (s *Sums) Trim(begins time.Time) {
	if !begins.After(s.begins) {
		return // nothing was removed, or the caller learned of a later removal before
	}
	s.begins = begins
	for d := range s.days {
		if d < dayOf(begins) {
			s.forget(d)
		}
	}
}

// Missing counts n records that are lost or cannot be read. The server stored them at about stored.
func (s *Sums) Missing(n int, stored time.Time) {
	if d := s.day(dayOf(stored)); d != nil {
		d.missing += n
	}
}

// day returns the sums of a day. It returns nil if the day was dropped.
func (s *Sums) day(number dayNumber) *day {
	d := s.days[number]
	if d == nil && number > s.forgotten {
		d = &day{calls: map[callPlace]calls{}, limits: map[limitPlace]taken{}, keys: map[keyPlace]calls{}}
		s.days[number] = d
	}
	return d
}

// Add adds a record. Records may come in any order, but each only once.
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

// callsOf returns what a record adds to the sums of calls. some is false if the record adds nothing.
func callsOf(c *ledger.Record) (of calls, some bool) {
	of.usage = c.Usage
	of.saving.AddRecord(c)
	// Neither a poll nor a further job of a pack is a call of its own.
	if of.money.AddRecord(c); of.money != (ledger.Spending{}) && !c.Polled && !c.Pack.Follows() {
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

// put adds calls to the sum at a place. It returns how many more bytes the sums then take.
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

// worth returns what the calls cost, including what is in doubt.
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

// coarsenTo replaces minutes by quarters of an hour in all days up to last.
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

// giveUp gives up the next of the things that the comment of Sums lists. It returns false if there is nothing more to
// give up.
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

// oldest returns the oldest day that is later than after.
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

// late bounds how much later a call may count than its record was stored. The clocks of different machines differ, and
// a call that a former process left behind counts some seconds after its earliest start.
const late = 10 * time.Second

// Since returns the time from which on the sums have all calls. It returns zero if they have all calls that the ledger
// ever had.
func (s *Sums) Since(now time.Time) (since time.Time) {
	switch {
	case s.whole:
	case s.reached.IsZero():
		since = ceil(now, s.grain) // nothing was added yet
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

// floor returns the beginning of the span that contains t. grain returns how long spans are on a day.
func floor(t time.Time, grain func(dayNumber) time.Duration) time.Time {
	return t.UTC().Truncate(grain(dayOf(t)))
}

// ceil returns the first beginning of a span at or after t. grain returns how long spans are on a day.
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
