package judge

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir-torture/internal/plan"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// gone reports whether a job was answered between a backup and its restore, so that weir knows nothing of it.
func (e *Evidence) gone(p *Receipt) bool {
	for _, b := range e.SetBacks {
		if p.At.After(b.From) && p.At.Before(b.To) {
			return true
		}
	}
	return false
}

// Damages are the bytes that were flipped in a run.
type Damages []Damage

// of reports whether a stream was damaged. Each job of a damaged queue may stand behind the damaged message in a block,
// whenever it was accepted. At the next kill the server discards the part of the block behind the damage, and uses its
// sequences again for other jobs.
func (all Damages) of(stream string) bool {
	return slices.ContainsFunc(all, func(d Damage) bool { return d.Stream == stream })
}

// after reports whether a stream was damaged after a moment. What was stored in it before may then be missing:
// nats-server does not mend a damaged block, and a node with one may lead its stream.
func (all Damages) after(stream string, stored time.Time) bool {
	return slices.ContainsFunc(all, func(d Damage) bool { return d.Stream == stream && stored.Before(d.Up) })
}

// ofQueue reports whether a queue was damaged.
func (all Damages) ofQueue() bool {
	return slices.ContainsFunc(all, func(d Damage) bool { return queueNamed.MatchString(d.Stream) })
}

// explain reports whether an error is about reading a stream that was damaged.
func (all Damages) explain(what string) bool {
	return slices.ContainsFunc(all, func(d Damage) bool { return strings.Contains(what, d.Stream+",") })
}

// endHurt reports whether a job without an end had one, in a stream that was damaged afterwards. last is the job's last
// call, or nil. Its answer must have arrived before the damage, and so must the job: later ends are in whole blocks.
func (e *Evidence) endHurt(p *Receipt, last *fakeapi.Arrival) bool {
	ended := p.At
	if last != nil {
		ended = e.Began.Add(time.Duration(max(last.At, last.End)))
	}
	return last != nil && e.Damages.after(ledger.ResultsStream, ended) || e.Damages.after(deadletter.Stream, ended)
}

// nameLost sets the job ids in the letters of lost jobs, because weir does not know the producers' ids.
func (e *Evidence) nameLost() {
	ids := map[Place]string{}
	for i := range e.Receipts {
		if p := &e.Receipts[i]; p.Code == 0 && !e.gone(p) {
			ids[Place{p.Stream, p.Seq}] = p.ID
		}
	}
	for i := range e.Ends.Letters {
		if l := &e.Ends.Letters[i]; l.Job == "" && l.At != (Place{}) {
			l.Job = ids[l.At]
		}
	}
}

// untold returns how many jobs a damage took without a report of weir. weir reports in a letter, which may not name the
// job, or by a line in the log about jobs that it cannot name.
func (e *Evidence) untold(lost map[string]int) (untold int) {
	told := map[string]int{}
	for _, l := range e.Ends.Letters {
		if l.Job == "" && l.Reason == string(deadletter.Unknown) && strings.HasPrefix(l.Detail, "lost: ") {
			told[queueNamed.FindString(l.Detail)]++
		}
	}
	for name, n := range lost {
		if !e.Heard.Unnamed[name] {
			untold += max(0, n-told[name])
		}
	}
	return untold
}

var queueNamed = regexp.MustCompile(`WEIR_` + plan.APIName + `_\d+`)

// explains reports whether a letter itself says why the outcome of its job is unknown.
func (e *Evidence) explains(l *Letter) bool {
	return strings.HasPrefix(l.Detail, "restored: ") && len(e.SetBacks) > 0 || strings.HasPrefix(l.Detail, "lost: ") && len(e.Damages) > 0
}

// again returns why a job was rightly called twice, or "". There are two reasons. The store lost the job before the
// producer had an answer, and the producer submitted the job again. Or a damaged block lost marks of calls, and weir
// said so.
func (e *Evidence) again(calls []fakeapi.Arrival, p *Receipt) string {
	if p == nil {
		return ""
	}
	first, last := e.at(&calls[0]), e.at(&calls[len(calls)-1])
	for _, b := range e.SetBacks {
		if first.After(b.From) && first.Before(b.To) && p.At.After(b.To) && p.At.Add(-p.Waited).Before(b.To) {
			return "handed in again after the store that knew it was lost"
		}
	}
	for _, d := range e.Damages {
		if d.Stream == p.Stream && e.Heard.Unnamed[d.Stream] && first.Before(last) && d.At.Before(last) {
			return "its marks were lost with a damaged block"
		}
	}
	return ""
}
