package whatif

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
	"weir/ingest"
)

// Bounds of a trace.
const (
	MostJobs     = 5_000_000
	mostLine     = 1 << 20 // bytes
	mostBadLines = 10      // bad lines that the error lists
)

// Trace holds recorded arrivals, sorted by time.
type Trace struct {
	arrivals []arrival
	keys     []string
	// takes has a row for each arrival, with what its calls took from each of limits; unknown if that is not known. It
	// is empty if the arrivals were read from a file.
	takes  []int64
	limits []string // names
	index  map[string]uint32
}

// arrival is one recorded job.
type arrival struct {
	at    bucket.Micros
	cost  int64
	took  int64  // what the call takes from limits that answers settle; unknown: its cost
	key   uint32 // index in keys
	row   uint32 // in takes
	lasts uint32 // microseconds of a call; 0: as the candidate says
	calls uint16 // that the job needs; 0 counts as 1
	taken uint16 // how many calls the limits counted; mean: no call was recorded
}

// mean says that no call of a job was recorded. What its call takes, and how long it lasts, are then means of the other
// calls.
const mean = math.MaxUint16

// unknown says that a trace does not tell what a call took.
const unknown = -1

// Jobs returns the number of arrivals.
func (t *Trace) Jobs() int { return len(t.arrivals) }

// Keys returns the number of different keys.
func (t *Trace) Keys() int { return len(t.keys) }

// readings collects the arrivals and the bad lines of a trace.
type readings struct {
	name  string
	trace Trace
	most  int // bound of the arrivals
	bad   []error
	more  int // bad lines beyond mostBadLines
}

// ReadTrace reads arrivals. The input is CSV whose first line names the columns time, key and optionally cost and took,
// or it is one JSON object with these fields on each line. A time is a number of seconds or an RFC 3339 time. A cost is
// a whole number from 1; the default is 1. took is what the call really took, a whole number from 0; the default is the
// cost. The lines may be in any order. ReadTrace fails if there are more than most arrivals. Its error lists the first
// bad lines by number, and uses name as the file's name.
func ReadTrace(in io.Reader, name string, most int) (*Trace, error) {
	r := &readings{name: name, most: most}
	lines := bufio.NewReaderSize(in, 64<<10)
	first, err := firstByte(lines)
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: the trace is empty", name)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if first == '{' {
		err = r.readJSON(lines)
	} else {
		err = r.readCSV(lines)
	}
	if err == nil {
		err = r.problem()
	}
	if err != nil {
		return nil, err
	}
	r.trace.sort()
	return &r.trace, nil
}

// firstByte returns the first byte that is not blank, without consuming it.
func firstByte(lines *bufio.Reader) (byte, error) {
	for n := 1; ; n++ {
		seen, err := lines.Peek(n)
		if len(seen) < n {
			return 0, cmp.Or(err, io.EOF)
		}
		if b := seen[n-1]; !strings.ContainsRune(" \t\r\n\ufeff", rune(b)) && b < 0x80 {
			return b, nil
		}
	}
}

// problem returns the error that lists the bad lines. It returns nil if there are none.
func (r *readings) problem() error {
	if r.more > 0 {
		r.bad = append(r.bad, fmt.Errorf("%s: and %d more bad lines", r.name, r.more))
	}
	if len(r.bad) == 0 && len(r.trace.arrivals) == 0 {
		return fmt.Errorf("%s: the trace has no arrivals", r.name)
	}
	return errors.Join(r.bad...)
}

func (r *readings) fail(line int, format string, args ...any) {
	if len(r.bad) == mostBadLines {
		r.more++
		return
	}
	r.bad = append(r.bad, fmt.Errorf("%s:%d: "+format, append([]any{r.name, line}, args...)...))
}

// add adds one arrival. It returns false if the trace is already full.
func (r *readings) add(line int, at, key, cost, took string) bool {
	if len(r.trace.arrivals) >= r.most {
		r.fail(line, "a trace has at most %d arrivals here: take a part of it", r.most)
		return false
	}
	when, err := parseTime(at)
	if err != nil {
		r.fail(line, "%v", err)
		return true
	}
	if err := ingest.CheckKey(key); err != nil {
		r.fail(line, "key: %v", err)
		return true
	}
	units, actual := int64(1), int64(unknown)
	if cost != "" {
		if units, err = strconv.ParseInt(cost, 10, 64); err != nil || units < 1 {
			r.fail(line, "cost %q is not a whole number from 1", clip(cost))
			return true
		}
	}
	if took != "" {
		if actual, err = strconv.ParseInt(took, 10, 64); err != nil || actual < 0 {
			r.fail(line, "took %q is not a whole number from 0", clip(took))
			return true
		}
	}
	r.trace.arrivals = append(r.trace.arrivals, arrival{at: when, key: r.trace.place(key), cost: units, took: actual})
	return true
}

// place returns the index of a key, and adds the key if it is new.
func (t *Trace) place(key string) uint32 {
	place, known := t.index[key]
	if !known {
		if t.index == nil {
			t.index = map[string]uint32{}
		}
		place = uint32(len(t.keys)) //nolint:gosec // at most MostJobs
		key = strings.Clone(key)
		t.index[key] = place
		t.keys = append(t.keys, key)
	}
	return place
}

func (t *Trace) sort() {
	slices.SortStableFunc(t.arrivals, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
}

func (r *readings) readCSV(in io.Reader) error {
	rows := csv.NewReader(in)
	rows.ReuseRecord, rows.TrimLeadingSpace = true, true
	head, err := rows.Read()
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	columns := map[string]int{}
	for i, name := range head {
		columns[strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")))] = i
	}
	at, hasTime := columns["time"]
	key, hasKey := columns["key"]
	optional := func(row []string, name string) string {
		if i, ok := columns[name]; ok {
			return strings.TrimSpace(row[i])
		}
		return ""
	}
	if !hasTime || !hasKey {
		return fmt.Errorf("%s:1: the first line must name the columns: time,key, and optionally cost and took; it is %q", r.name, clip(strings.Join(head, ",")))
	}
	for {
		row, err := rows.Read()
		line, _ := rows.FieldPos(0)
		var wrong *csv.ParseError
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &wrong):
			r.fail(wrong.Line, "%v", wrong.Err)
			if !errors.Is(err, csv.ErrFieldCount) {
				return nil // where the next line begins is unknown
			}
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", r.name, err)
		}
		if !r.add(line, strings.TrimSpace(row[at]), row[key], optional(row, "cost"), optional(row, "took")) {
			return nil
		}
	}
}

func (r *readings) readJSON(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, mostLine)
	n := 0
	for lines.Scan() {
		n++
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		var one struct {
			Time json.RawMessage `json:"time"`
			Key  *string         `json:"key"`
			Cost json.Number     `json:"cost"`
			Took json.Number     `json:"took"`
		}
		switch err := json.Unmarshal(text, &one); {
		case err != nil:
			r.fail(n, "it is no JSON object with time, key, cost and took: %v", err)
			continue
		case one.Time == nil || one.Key == nil:
			r.fail(n, "it has no time or no key")
			continue
		}
		if !r.add(n, strings.Trim(string(one.Time), `"`), *one.Key, one.Cost.String(), one.Took.String()) {
			return nil
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		r.fail(n+1, "the line is longer than %d bytes", mostLine)
	} else if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	return nil
}

// sinceEpoch separates two kinds of times in seconds: a number of at least sinceEpoch counts from 1970, and a smaller
// one from the start of the recording.
const sinceEpoch = 1e9

// parseTime reads a time. It shifts recordings that begin with 0, so that they do not begin where all calendar periods
// do.
func parseTime(text string) (bucket.Micros, error) {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return bucket.MicrosOf(at), nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsNaN(seconds) || math.IsInf(seconds, 0):
		return 0, fmt.Errorf("time %q is neither a number of seconds nor an RFC 3339 time", clip(text))
	case seconds < 0 || seconds > 4*sinceEpoch:
		return 0, fmt.Errorf("time %q is not between 0 and %.0f seconds", clip(text), 4*sinceEpoch)
	case seconds < sinceEpoch:
		seconds += sinceEpoch
	}
	return bucket.Micros(math.Round(seconds * 1e6)), nil
}

func clip(text string) string {
	if len(text) > 60 {
		return strings.ToValidUTF8(text[:60], "") + "…"
	}
	return text
}
