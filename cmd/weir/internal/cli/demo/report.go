package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
)

// leastUse is the least part of the rate that must be used while jobs wait. Without it, a weir that makes no calls
// would pass.
const leastUse = 0.75

// crash describes the kill -9 in the middle of the demo. Times are on the clock of the api's ledger.
type crash struct {
	at, gone, ready int64
	called          int // different jobs of the burst that were called before the kill
}

// report has the figures of the demo.
type report struct {
	Verdict bucket.Outcome `json:"verdict"`
	HeldUp  time.Duration  `json:"held_up_ns"` // the longest time that the machine kept this process waiting: the error of the recorded times

	Sent      int `json:"sent"` // jobs of the burst
	Accepted  int `json:"accepted"`
	Throttled int `json:"throttled"`
	Letters   int `json:"letters"`
	Events    int `json:"events"`
	Aside     int `json:"aside"` // jobs of the calm customer; all were accepted

	Calls       int    `json:"calls"`  // calls of both customers that reached the api
	Called      int    `json:"called"` // different accepted jobs that were called
	Waiting     int    `json:"waiting"`
	Results     int    `json:"results"`
	Lost        int    `json:"lost"`
	Unasked     int    `json:"unasked"`  // calls of jobs that were not accepted
	Repeated    int    `json:"repeated"` // jobs called again after the kill
	BilledTwice int    `json:"billed_twice"`
	OutOfOrder  int    `json:"out_of_order"`
	Limited     int    `json:"limited"` // calls that the api answered 429
	Charged     string `json:"charged"`

	Rate         bucket.Outcome `json:"rate"`
	WorstSecond  int64          `json:"worst_second"`
	AllowedThere int64          `json:"allowed_in_a_second"`
	Utilisation  float64        `json:"utilisation"` // the part of the rate that the burst used while weir ran
	RecoveryMS   int64          `json:"recovery_ms"` // from the kill to the next call
	AsideMS      float64        `json:"aside_median_ms"`
	AsideWorstMS float64        `json:"aside_worst_ms"` // the longest wait, without jobs that the kill delayed
	AsideKillMS  float64        `json:"aside_kill_ms"`  // the longest wait of jobs that the kill delayed
}

// judge compares the API's ledger file with the receipts. It asks weir only how many jobs and results weir has.
func (d *demo) judge(ctx context.Context, b *burst, aside []submission, c crash) (*report, error) {
	letters, events, err := d.awaitNotices(ctx, b.throttled)
	if err != nil {
		return nil, err
	}
	r := &report{
		Sent: len(b.sent), Accepted: len(b.accepted), Throttled: b.throttled, Letters: letters, Events: events, Aside: len(aside),
		HeldUp: d.heldUp.Worst(),
	}
	promised := slices.Clone(b.accepted)
	for _, s := range aside {
		promised = append(promised, s.receipt)
	}
	if err := d.finished(ctx, r, len(promised)); err != nil {
		return nil, err
	}
	ledger, err := fakeapi.ReadLedger(d.ledger())
	if err != nil {
		return nil, err
	}
	r.audit(ledger.Arrivals, promised)
	r.pace(ledger.Arrivals, c)
	r.waits(ledger.Arrivals, aside, c)
	r.Verdict = worst(r.findings())
	return r, nil
}

// finished blocks until every promised job has its result and no job waits, or until toldWithin has passed. It stores
// the numbers of results and of waiting jobs in the report.
func (d *demo) finished(ctx context.Context, r *report, promised int) (err error) {
	limit := time.After(toldWithin)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if r.Results, err = d.stored(ctx, "WEIR_RESULTS", "weir.results."+apiName+".>"); err != nil {
			return err
		}
		if r.Waiting, err = d.waiting(ctx); err != nil {
			return err
		}
		if r.Results >= promised && r.Waiting == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-limit:
			return nil // the verdict reports what is missing
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// audit compares the calls with the accepted jobs.
func (r *report) audit(arrivals []fakeapi.Arrival, promised []receipt) {
	r.Calls = len(arrivals)
	called := jobsOf(arrivals)
	order := map[string]string{} // by job: its sequence in its queue
	for _, p := range promised {
		order[p.Job] = strconv.FormatUint(p.Seq, 10)
		if _, ok := called[p.Job]; ok {
			r.Called++
		}
	}
	r.Lost = max(0, len(promised)-r.Called-r.Waiting)
	twice, _ := fakeapi.CalledTwice(arrivals, fakeapi.ByHeader(idHeader))
	r.Repeated = len(twice)
	for _, t := range twice {
		if t.Billed > 1 {
			r.BilledTwice++
		}
	}
	wrong, unasked := fakeapi.Order(arrivals, func(a *fakeapi.Arrival) string { return order[a.Header(idHeader)] }, fakeapi.FirstAttempts)
	r.OutOfOrder, r.Unasked = len(wrong), unasked
	r.Limited = fakeapi.CountByStatus(arrivals)[429]
	r.Charged = dollars(fakeapi.Bills(arrivals).Charged)
}

// pace checks the calls of each customer against the rate, and measures the recovery after the kill.
func (r *report) pace(arrivals []fakeapi.Arrival, c crash) {
	limit := bucket.Rate{Count: rate, Per: time.Second, Burst: 1}
	r.Rate = bucket.Pass
	for _, key := range fakeapi.KeysOf(arrivals) {
		var stamps []bucket.Arrival
		for _, a := range fakeapi.OfKey(arrivals, key) {
			stamps = append(stamps, bucket.Arrival{At: a.At, End: a.End})
		}
		v := bucket.Check(stamps, bucket.Expectation{Limit: bucket.Limit{Name: key, Rate: &limit}, Jitter: jitter, Eps: r.HeldUp})
		if v.Outcome != bucket.Pass && r.Rate != bucket.Fail {
			r.Rate = v.Outcome
		}
		if v.Worst > r.WorstSecond {
			r.WorstSecond, r.AllowedThere = v.Worst, v.Allowed
		}
	}
	busy := fakeapi.OfKey(arrivals, busyKey)
	next := slices.IndexFunc(busy, func(a fakeapi.Arrival) bool { return a.At > c.gone })
	if next < 1 {
		return
	}
	r.RecoveryMS = time.Duration(busy[next].At - c.at).Milliseconds()
	interval := time.Second / rate
	var ran time.Duration
	for _, part := range [][]fakeapi.Arrival{busy[:next], busy[next:]} {
		ran += time.Duration(part[len(part)-1].At-part[0].At) + interval
	}
	r.Utilisation = float64(len(busy)) * interval.Seconds() / ran.Seconds()
}

// waits measures how long the calm customer's jobs waited for their calls.
func (r *report) waits(arrivals []fakeapi.Arrival, aside []submission, c crash) {
	first := map[string]int64{}
	for _, a := range fakeapi.OfKey(arrivals, calmKey) {
		if id := a.Header(idHeader); first[id] == 0 {
			first[id] = a.At
		}
	}
	var waits []int64
	for _, s := range aside {
		at := first[s.Job]
		switch wait := max(0, at-s.at); {
		case at == 0: // never called
		case at > c.at && s.at < c.ready:
			r.AsideKillMS = max(r.AsideKillMS, float64(wait)/1e6)
		default:
			waits = append(waits, wait)
		}
	}
	if len(waits) == 0 {
		return
	}
	slices.Sort(waits)
	r.AsideMS = float64(waits[len(waits)/2]) / 1e6
	r.AsideWorstMS = float64(waits[len(waits)-1]) / 1e6
}

// finding is one line of the verdict.
type finding struct {
	outcome    bucket.Outcome
	name, text string
}

// worst returns the verdict, which is the worst outcome of the findings.
func worst(findings []finding) bucket.Outcome {
	verdict := bucket.Pass
	for _, f := range findings {
		if f.outcome == bucket.Fail || f.outcome == bucket.Inconclusive && verdict == bucket.Pass {
			verdict = f.outcome
		}
	}
	return verdict
}

// findings returns the findings of the check. If the machine records times late, calls that are too fast or too slow
// make the verdict inconclusive and not failed.
func (r *report) findings() []finding {
	var all []finding
	add := func(ok bool, name, format string, args ...any) {
		outcome := bucket.Pass
		if !ok {
			outcome = bucket.Fail
		}
		all = append(all, finding{outcome, name, fmt.Sprintf(format, args...)})
	}
	unless := func(excused bool) { // turns a failure of the last finding into inconclusive
		if last := &all[len(all)-1]; excused && last.outcome == bucket.Fail {
			last.outcome = bucket.Inconclusive
		}
	}
	add(r.Rate == bucket.Pass, "rate", "at most %d calls of a customer in any second, %d are allowed", r.WorstSecond, r.AllowedThere)
	unless(r.Rate == bucket.Inconclusive)
	add(r.Limited == 0, "429s", "%d from the api", r.Limited)
	unless(r.Rate == bucket.Inconclusive)
	promised := r.Accepted + r.Aside
	add(r.Lost == 0 && r.Waiting == 0 && r.Called == promised && r.Results == promised, "lost",
		"%d: %d accepted = %d called + %d waiting; %d results", r.Lost, promised, r.Called, r.Waiting, r.Results)
	add(r.Unasked == 0, "unasked", "%d calls for jobs that were never accepted", r.Unasked)
	add(r.BilledTwice == 0, "billed twice", "%d: %s for %d jobs; %s", r.BilledTwice, r.Charged, r.Called, repeats(r.Repeated))
	add(r.OutOfOrder == 0, "order", "%d calls before one accepted earlier", r.OutOfOrder)
	add(r.Throttled > 0 && r.Sent == r.Accepted+r.Throttled && r.Letters == r.Throttled && r.Events == r.Throttled, "refused",
		"%d of %d sent = %d dead letters = %d events", r.Throttled, r.Sent, r.Letters, r.Events)
	add(r.Utilisation >= leastUse, "speed", "%.0f %% of the rate used while weir ran", 100*r.Utilisation)
	unless(r.HeldUp > jitter)
	add(r.RecoveryMS > 0, "recovery", "%.1f s from kill -9 to the next call", float64(r.RecoveryMS)/1000)
	during := ""
	if r.AsideKillMS > 0 {
		during = fmt.Sprintf(" (and %.0f ms during the kill)", r.AsideKillMS)
	}
	add(r.AsideMS > 0, "neighbour", "called %.1f ms after sending, at worst %.1f ms%s", r.AsideMS, r.AsideWorstMS, during)
	return all
}

func repeats(n int) string {
	switch n {
	case 0:
		return "no call repeated"
	case 1:
		return "1 call repeated, not billed again"
	default:
		return fmt.Sprintf("%d calls repeated, not billed again", n)
	}
}

func (r *report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// dollars formats millionths of a dollar.
func dollars(millionths int64) string { return fmt.Sprintf("$%.2f", float64(millionths)/1e6) }
