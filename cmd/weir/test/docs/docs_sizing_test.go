package docs

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"weir/bucket/queue"
	"weir/cmd/weir/weirtest"
	"weir/dispatcher/schedule"
)

// figure is a number with a unit, as the topic sizing writes it.
var figure = regexp.MustCompile(`(\d[\d,.]*)(?: (µs|ms|s|min|h|bytes|KB|MB|GB|TB|GiB)\b)?`)

// units has the size of each unit, in seconds or bytes.
var units = map[string]float64{
	"µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600,
	"bytes": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "GiB": 1 << 30,
}

// figuresIn returns the numbers of a text. A number without a unit has the unit of the next one, as in "1.7 to 2.1 MB".
func figuresIn(t *testing.T, text string) []float64 {
	t.Helper()
	found := figure.FindAllStringSubmatch(text, -1)
	all, unit := make([]float64, len(found)), 1.0
	for i := len(found) - 1; i >= 0; i-- {
		if size, ok := units[found[i][2]]; ok {
			unit = size
		}
		n, err := strconv.ParseFloat(strings.Trim(strings.ReplaceAll(found[i][1], ",", ""), "."), 64)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		all[i] = n * unit
	}
	return all
}

// perCall is what one call takes, by the topic sizing: the least and the most of each, in seconds or bytes.
type perCall struct {
	rate                []float64 // calls a second of two cores
	ledger, result, job []float64 // on disk
	limits              []float64 // in Redis
	underWay, id, ended []float64 // memory
}

func perCallOf(t *testing.T) perCall {
	t.Helper()
	rows := tableRows(t, "sizing", "what")
	one := func(what string) []float64 {
		for _, r := range rows {
			if strings.HasPrefix(r.cells[0], what) {
				f := figuresIn(t, r.cell("figure"))
				return []float64{f[0], f[len(f)-1]}
			}
		}
		t.Fatalf("the topic sizing does not say what one call takes of %s", what)
		return nil
	}
	return perCall{
		rate: one("calls of one replica"), ledger: one("ledger"), result: one("result"), job: one("queue"),
		limits: one("limits in Redis"), underWay: one("memory of a call under way"),
		id: one("memory of an id in the server"), ended: one("memory of an ended job's id"),
	}
}

const (
	usualDedupe  = 600.0 // seconds
	usualWindow  = 120.0 // for which the server remembers other ids
	ofADay       = 86400.0
	roomOfStream = 8.0 * (1 << 30) // of results, and of records
)

// at returns what the rows of the topic's table must say of a rate, divided among fleets of replicas: the least and the
// most.
func (c perCall) at(rate, fleets, replicas, partitions float64) map[string][2]float64 {
	each := rate / fleets
	both := func(n float64) [2]float64 { return [2]float64{n, n} }
	times := func(n float64, of []float64) [2]float64 { return [2]float64{n * of[0], n * of[1]} }
	upTo := func(n float64, of []float64) [2]float64 { return [2]float64{n / of[1], n / of[0]} }
	stored := []float64{c.ledger[0] + c.result[0] + c.job[0], c.ledger[1] + c.result[1] + c.job[1]}
	pairs := upTo(rate, c.rate)
	ended := [2]float64{each * c.ended[0] * usualDedupe, each * c.ended[1] * 2 * usualDedupe}
	return map[string][2]float64{
		"times two cores":                              {math.Ceil(pairs[0]), math.Ceil(pairs[1])},
		"streams":                                      both(fleets * (partitions + 4 + 3)),
		"messages stored and deletions a second":       both(5 * rate),
		"bytes written a second":                       times(rate, stored),
		"Redis processes":                              both(fleets * math.Ceil(each*c.limits[0])),
		"memory of calls under way":                    times(rate, c.underWay),
		"memory for ids in the servers":                both(rate * c.id[0] * (usualDedupe + 2*usualWindow)),
		"memory for ids of ended jobs in each replica": ended,
		"8 GiB hold results for":                       upTo(roomOfStream/each, c.result),
		"8 GiB hold the ledger for":                    upTo(roomOfStream/each, c.ledger),
		"results of 24 hours":                          times(rate*ofADay, c.result),
		"ledger of 62 days":                            times(rate*62*ofADay, c.ledger),
		"messages of ownership a second":               both(fleets * replicas * (replicas + 2)),
	}
}

// TestSizingAddsUp computes the table of the topic sizing again, from what one call takes by the same topic and from
// bounds in the code. The topic rounds to two digits.
func TestSizingAddsUp(t *testing.T) {
	t.Parallel()
	call := perCallOf(t)
	rows := map[string]row{}
	var columns []string
	for _, r := range tableRows(t, "sizing", "calls a second") {
		name, _, _ := strings.Cut(r.cells[0], " (")
		name, _, _ = strings.Cut(name, ",")
		rows[strings.Trim(name, "`")], columns = r, r.columns
	}
	for _, column := range columns[1:] {
		cell := func(name string) []float64 {
			r, ok := rows[name]
			if !ok {
				t.Fatalf("the topic sizing has no row %q", name)
			}
			return figuresIn(t, r.cell(column))
		}
		rate, replicas, fleets := figuresIn(t, column)[0], cell("replicas"), 1.0
		if len(replicas) == 2 {
			fleets = replicas[1]
		}
		partitions, each, inAFleet := cell("WEIR_PARTITIONS")[0], rate/fleets, replicas[0]/fleets
		for name, want := range call.at(rate, fleets, inAFleet, partitions) {
			got := cell(name)
			if math.Abs(got[0]-want[0]) > 0.06*want[0] || math.Abs(got[len(got)-1]-want[1]) > 0.06*want[1] {
				t.Errorf("%s at %s calls a second: the topic has %g, and it is %g", name, column, got, want)
			}
		}
		// Calls take a second, so as many are under way as start in a second.
		if n := each * math.Ceil(partitions/inAFleet) / partitions; n > schedule.MaxCalls {
			t.Errorf("at %s calls a second a replica has %g calls under way, more than %d", column, n, schedule.MaxCalls)
		}
		if ids := each * usualDedupe / partitions; ids > queue.SureIDs {
			t.Errorf("at %s calls a second a partition cannot remember its %g ids", column, ids)
		}
	}
}

// TestSizingIsMeasured checks that the account of measurements has the figures from which the topic sizing computes,
// and that the code has the bounds.
func TestSizingIsMeasured(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(weirtest.Repository, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	measured, streams := read("deploy/bench/README.md"), read("dispatcher/settle/streams.go")
	for _, text := range []string{
		"4,600 to 10,500", "27,000 to 55,000", "600 to 710 bytes", "460 to 550", "680 to 810",
		"40 KB", "110 bytes", "14 µs", "26 µs",
	} {
		if !strings.Contains(measured, text) || !strings.Contains(weirtest.TopicText(t, "sizing"), text) {
			t.Errorf("the topic sizing or deploy/bench/README.md does not have the measured figure %q", text)
		}
	}
	if n := len(regexp.MustCompile(`max(Results|Ledger)Bytes\s+= 8 << 30`).FindAllString(streams, -1)); n != 2 {
		t.Errorf("%d of the streams of results and of the ledger get 8 GiB", n)
	}
}
