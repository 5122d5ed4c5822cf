package takeover

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/deadletter"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/ingest"

	"github.com/nats-io/nats.go/jetstream"
)

// The owner reports what a stream's server has lost (queue.Damage). It reports each lost job by a letter with
// everything known about it, an event, the log and a metric. If the key of a lost message is not known, it reports the
// loss by the log and another metric. It never reports a job that has ended: for every missing sequence it reads the
// ledger, the results and the letters. It notes in the partition what it has reported, because the stream goes on
// counting what it lost.

// lostJob is a job whose message the stream has lost.
type lostJob struct {
	key   string
	seq   uint64         // 0 if it is one of several
	last  *ledger.Record // record of its last call, nil for none
	begun bool           // it had an intent: a call may have started
}

// traces holds what is known about missing sequences.
type traces struct {
	ended map[uint64]string         // the keys of jobs that have ended
	told  map[uint64]bool           // jobs that a letter reports as lost
	last  map[uint64]*ledger.Record // the newest records of jobs that have not ended
}

// losses reports what a partition's stream has lost.
type losses struct{ *lane.Owned }

// damaged looks in the background for messages that a partition's stream has lost. It ends when they are reported, or
// the worker stops. begun says of each job with markers whether it has an intent. damaged calls told when the losses are
// reported. The next start finds losses again that were not reported before the stop.
func (p *losses) damaged(ctx context.Context, begun map[uint64]bool, told func()) {
	p.W.Running.Go(func() {
		ctx, cancel := p.UntilStopping(ctx)
		defer cancel()
		for ctx.Err() == nil && !p.Lost.Load() {
			err := p.tellDamage(ctx, begun)
			if err == nil {
				told()
				return
			}
			if ctx.Err() != nil {
				return
			}
			p.W.Log.Error("could not look up or report what a queue's store has lost; trying again", "stream", p.Bucket.Name(), "err", err)
			stream.Sleep(ctx, lane.LoadRetry)
		}
	})
}

// tellDamage reports losses that were not reported before. If it fails, the caller may try again.
func (p *losses) tellDamage(ctx context.Context, begun map[uint64]bool) error {
	d, err := p.Bucket.Damage(ctx)
	if err != nil || d.None() {
		return err
	}
	found, err := tracesOf(ctx, p.Owned, d.Seqs, time.Time{})
	if err != nil {
		return err
	}
	if err := p.tellUnnamed(ctx, &d); err != nil {
		return err
	}
	all := lostJobs(&d, found)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		jobs := all[key]
		told := p.Told.ToldOf(key)
		for i := told; i < len(jobs); i++ {
			jobs[i].begun = mayHaveBegun(jobs[i].seq, begun)
			if err := p.tellLost(ctx, &jobs[i], i, &d); err != nil {
				return err
			}
			if err := p.Told.NoteTold(ctx, key, func(int) int { return i + 1 }); err != nil {
				return err
			}
		}
		if told >= len(jobs) {
			p.W.Log.Info("the queue's store still counts lost jobs that were already reported", "stream", p.Bucket.Name(), "key", key, "jobs", len(jobs))
		}
	}
	return nil
}

// lostJobs returns the lost jobs of each key.
func lostJobs(d *queue.Damage, found traces) map[string][]lostJob {
	left := maps.Clone(d.Jobs)
	for _, key := range found.ended {
		left[key] = max(0, left[key]-1)
	}
	lost := map[string][]lostJob{}
	var unnamed []uint64
	for _, seq := range d.Seqs {
		c := found.last[seq]
		switch _, ended := found.ended[seq]; {
		case ended:
		case c != nil && left[c.Key] > 0:
			left[c.Key]--
			lost[c.Key] = append(lost[c.Key], lostJob{key: c.Key, seq: seq, last: c})
		default:
			unnamed = append(unnamed, seq)
		}
	}
	maps.DeleteFunc(left, func(_ string, n int) bool { return n <= 0 })
	for key, n := range left {
		for i := range n {
			job := lostJob{key: key}
			if len(left) == 1 && d.Markers == 0 && len(unnamed) == n {
				job.seq = unnamed[i]
			}
			lost[key] = append(lost[key], job)
		}
	}
	for _, jobs := range lost { // reported jobs must come first: the note of what was reported is a number of jobs
		slices.SortStableFunc(jobs, func(a, b lostJob) int { return cmp.Compare(untold(found, a), untold(found, b)) })
	}
	return lost
}

// untold returns 0 for a job that a letter already reports as lost, else 1.
func untold(found traces, j lostJob) int {
	if found.told[j.seq] {
		return 0
	}
	return 1
}

// mayHaveBegun reports whether a call of a lost job may have begun. begun says of each unread job with markers whether
// it has an intent. If the sequence of the lost job is unknown, the job may be any of them.
func mayHaveBegun(seq uint64, begun map[uint64]bool) bool {
	if seq != 0 {
		return begun[seq]
	}
	for _, one := range begun {
		if one {
			return true
		}
	}
	return false
}

// tellLost stores the letter and the event of one lost job, and counts the job as lost.
func (p *losses) tellLost(ctx context.Context, j *lostJob, number int, d *queue.Damage) error {
	name := p.Bucket.Name()
	which := fmt.Sprintf("message %d of %s", j.seq, name)
	origin := ledger.OriginOf(name, j.seq, 0)
	if j.seq == 0 {
		which = fmt.Sprintf("a message of %s, one of %s,", name, sequences(d.Seqs))
		origin = fmt.Sprintf("%s.lost.%d-%d", name, queue.KeySum(j.key), number)
	}
	l := &deadletter.Letter{
		API: p.W.Name, Key: j.key, Origin: origin, Reason: deadletter.Unknown, BodyLeftOut: true, At: time.Now(), Billed: deadletter.NotBilled,
		Detail: fmt.Sprintf("lost: the store of its queue is damaged: %s is counted and cannot be read any more; its producer has to hand the job in again", which),
	}
	if j.begun || d.Markers > 0 {
		l.Billed = deadletter.BilledUnknown
	}
	if c := j.last; c != nil {
		l.JobID, l.Attempts, l.Status, l.Redrives, l.Accepted = c.Job, c.Attempt, c.Status, c.Redrives, c.Accepted
		l.Billed = l.Billed.Worst(c.Billed)
	}
	p.W.Log.Error("an accepted job is lost: the store of its queue is damaged", "stream", name, "seq", j.seq, "key", j.key, "job_id", l.JobID,
		"billed", l.Billed)
	err := p.PersistOf(ctx, func() error { return p.W.Env.Letters.Bury(l) })
	if err == nil {
		p.W.Metrics.Finished.Count(lane.Lost)
	}
	return err
}

// tellUnnamed reports losses without a known key: data that the server discarded, lost markers, and any loss in a queue
// that is too large to search.
func (p *losses) tellUnnamed(ctx context.Context, d *queue.Damage) error {
	n := int(min(d.Dropped, 1<<40)) + d.Markers
	if d.Unsure {
		n++
	}
	if n == 0 || p.Told.ToldOf("") == n {
		return nil
	}
	name := p.Bucket.Name()
	if d.Dropped > 0 {
		p.W.Log.Error("the server found a damaged block of a queue's store and discarded messages: accepted jobs may be lost, and their ids are unknown",
			"stream", name, "bytes", d.Dropped)
	}
	if d.Markers > 0 {
		p.W.Log.Error("marks of calls are lost, the store of the queue is damaged: a job that was being called may be called again",
			"stream", name, "marks", d.Markers)
	}
	if d.Unsure {
		p.W.Log.Error("a queue's store counts more messages than it returns, and is too large to search for the missing ones", "stream", name)
	}
	if err := p.Told.NoteTold(ctx, "", func(int) int { return n }); err != nil {
		return err
	}
	p.W.Env.Metrics.Damages.WithLabelValues(p.W.Name).Inc()
	return nil
}

// sequences formats the first few of a list of sequences.
func sequences(all []uint64) string {
	const most = 8
	var text []string
	for _, seq := range all[:min(len(all), most)] {
		text = append(text, strconv.FormatUint(seq, 10))
	}
	if len(all) > most {
		text = append(text, "…")
	}
	if len(text) == 0 {
		return "unknown sequence"
	}
	return strings.Join(text, ", ")
}

// tracesOf finds what became of the jobs with these sequences in the partition's stream. It reads what the ledger, the
// results and the letters of the api have stored since the time since, or everything if since is zero. If seqs is
// empty, it reads nothing.
func tracesOf(ctx context.Context, p *lane.Owned, seqs []uint64, since time.Time) (traces, error) {
	name, found := p.Bucket.Name(), traces{ended: map[uint64]string{}, last: map[uint64]*ledger.Record{}, told: map[uint64]bool{}}
	if len(seqs) == 0 {
		return found, nil
	}
	wanted := make(map[uint64]bool, len(seqs))
	for _, seq := range seqs {
		wanted[seq] = true
	}
	err := readFrom(ctx, p.W.Env, storedIn{ledger.CallsStream, ledger.CallsOf(p.W.Name), since}, func(msg jetstream.Msg) {
		var c ledger.Record
		switch {
		case json.Unmarshal(msg.Data(), &c) != nil || c.Stream != name || !wanted[c.Seq]:
		case c.Final:
			found.ended[c.Seq] = c.Key
		default:
			found.last[c.Seq] = &c
		}
	})
	if err != nil {
		return found, err
	}
	note := func(msg jetstream.Msg, of string, seq uint64) {
		tokens := strings.Split(msg.Subject(), ".")
		if key, err := ingest.ParseToken(tokens[len(tokens)-1]); err == nil && of == name && wanted[seq] {
			found.ended[seq] = key
		}
	}
	err = readFrom(ctx, p.W.Env, storedIn{ledger.ResultsStream, ledger.ResultSubjects.Below(p.W.Name), since}, func(msg jetstream.Msg) {
		if of, seq, _, ok := ledger.ParseResultID(msg.Headers().Get(ingest.HeaderMsgID)); ok {
			note(msg, of, seq)
		}
	})
	if err != nil {
		return found, err
	}
	err = readFrom(ctx, p.W.Env, storedIn{deadletter.Stream, deadletter.Subjects.Below(p.W.Name), since}, func(msg jetstream.Msg) {
		of, seq, accepted, ok := ledger.ParseOrigin(deadletter.OriginIn(msg.Headers()))
		switch {
		case ok && accepted != 0:
			note(msg, of, seq)
		case ok && of == name: // this letter reports the loss
			found.told[seq] = true
		}
	})
	return found, err
}

// storedIn selects the messages of a subject that a stream has stored since a time, or all of them if since is zero.
type storedIn struct {
	stream, subject string
	since           time.Time
}

// readFrom reads the selected messages from the stream's leader, and passes them to take. It reads bodies only if the
// stream is the ledger, otherwise only headers. It blocks until it has passed all of them.
func readFrom(ctx context.Context, e *lane.Env, of storedIn, take func(jetstream.Msg)) error {
	source, err := e.JS.Stream(ctx, of.stream)
	if err != nil {
		return fmt.Errorf("read %s: %w", of.stream, err)
	}
	from := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{of.subject}, DeliverPolicy: jetstream.DeliverAllPolicy, HeadersOnly: of.stream != ledger.CallsStream,
	}
	if !of.since.IsZero() {
		from.DeliverPolicy, from.OptStartTime = jetstream.DeliverByStartTimePolicy, &of.since
	}
	last := source.CachedInfo().State.LastSeq
	err = stream.ReadUntil(ctx, stream.Until{Conn: e.Conn, Stream: source, Last: last, From: from},
		func(msg jetstream.Msg, _ *jetstream.MsgMetadata) error { take(msg); return nil })
	if err != nil {
		return fmt.Errorf("read %s: %w", of.stream, err)
	}
	return nil
}
