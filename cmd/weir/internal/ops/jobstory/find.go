package jobstory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/jobindex"
	"weir/cmd/weir/internal/serve/admin"
	"weir/deadletter"
	"weir/dispatcher/desk"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"

	"github.com/nats-io/nats.go/jetstream"
)

// Options say which id to search for, and where.
type Options struct {
	Job  string
	APIs []string // apis whose queues to ask
	API  string   // only jobs of this api; "": of all
	Key  string   // only jobs of this key, which needs API; "": of all
	Scan int      // the most of the newest messages of each stream that are searched; 0: no bound
	// Search makes Find search the streams even if the index of ended jobs is whole.
	Search bool
	Bodies bool // return the bodies of results that have at most MostBody bytes
	Posted bool // ask whether ends were posted to callbacks
	// InQueue asks the owners of an api's queue for the jobs with the id. Optional; by default admin.Find.
	InQueue func(ctx context.Context, api string, q admin.JobInQueue) ([]desk.QueuedJob, error)
}

// MostBody is the largest body of a result in a story, in bytes.
const MostBody = 64 << 10

// UsualScan is the usual value of Options.Scan.
const UsualScan = 200_000

// acceptLeeway is how long before a job's acceptance its records are searched for, because the clocks of stream leaders
// differ.
const acceptLeeway = time.Minute

// mostJobs bounds how many jobs of one id a timeline has.
const mostJobs = 100

// search is one search for an id.
type search struct {
	Options
	c *connect.Connection
	t *Timeline

	isIndexed bool            // the index can replace a search of the streams
	traces    jobindex.Traces // of the id, if isIndexed

	isLetterGone bool // the index has a letter that was deleted since
}

// Find collects everything that weir stores about an id, and blocks until it has read all of it. The timeline names
// queues that did not answer. Find fails only if a stream cannot be read.
func Find(ctx context.Context, c *connect.Connection, o Options) (*Timeline, error) {
	s := &search{Options: o, c: c, t: &Timeline{Jobs: []*Job{}}}
	s.askQueues(ctx)
	looks := []func(context.Context) error{s.letters, s.results, s.calls, s.waited, s.events}
	if s.indexed(ctx) {
		looks = []func(context.Context) error{s.tracedLetters, s.tracedCalls, s.waited, s.tracedEvents}
	}
	for _, look := range looks {
		if err := look(ctx); err != nil {
			return nil, c.Explain(err)
		}
	}
	if s.isLetterGone && !slices.ContainsFunc(s.t.Jobs, func(j *Job) bool { return j.Queue != nil }) {
		s.askQueues(ctx) // the job may have been redriven since the queues were asked
	}
	for _, j := range s.t.Jobs {
		j.conclude()
		j.order()
		if err := s.show(ctx, j); err != nil {
			return nil, c.Explain(err)
		}
	}
	if s.Posted {
		s.postings(ctx)
	}
	s.t.sort()
	return s.t, nil
}

// show adds the newest result to the story of a done job.
func (s *search) show(ctx context.Context, j *Job) error {
	r := j.result
	if r == nil || j.State != Done {
		return nil
	}
	bodies := s.shows(r)
	if bodies && len(r.Body) < r.Size {
		whole, err := ledger.ResultAt(ctx, s.c.JetStream, r.Seq)
		if err != nil {
			return err
		}
		if whole != nil { // nil: it was just removed
			r = whole
		}
	}
	told := ResultOf(r)
	if !bodies {
		told.Body = Body{}
	}
	j.Result = &told
	return nil
}

// shows reports whether the story includes a result's body.
func (s *search) shows(r *ledger.Result) bool { return s.Bodies && r.Size <= MostBody }

// NotFound returns the error for a timeline without jobs. It returns nil if there are jobs.
func (t *Timeline) NotFound(id string) error {
	if len(t.Jobs) > 0 {
		return nil
	}
	return cli.NotFound(fmt.Errorf("no such job: %s, as far back as the search went", cli.Visible(id)))
}

// job returns the job of an api and a key. It returns nil if the timeline already has mostJobs jobs.
func (s *search) job(api, key string) *Job {
	if len(s.t.Jobs) >= mostJobs {
		return nil
	}
	return s.t.at(api, key, s.Job)
}

func (s *search) askQueues(ctx context.Context) {
	ask := s.InQueue
	if ask == nil {
		ask = func(_ context.Context, api string, q admin.JobInQueue) ([]desk.QueuedJob, error) {
			return admin.Find(s.c, api, q)
		}
	}
	for _, api := range s.APIs {
		found, err := ask(ctx, api, admin.JobInQueue{Job: s.Job, Key: s.Key})
		if err != nil {
			s.t.Silent = append(s.t.Silent, "a queue could not be asked: "+api+": "+err.Error())
		}
		for _, q := range found {
			j := s.job(api, q.Key)
			if j == nil {
				return
			}
			j.Queue = &Queue{q}
			j.accepted(q.Accepted, q.Stream, q.Seq)
		}
	}
}

// accepted records an acceptance of a job, once for each position in a queue. A redriven job has two.
func (j *Job) accepted(at time.Time, stream string, seq uint64) {
	for i := range j.Steps {
		if s := &j.Steps[i]; s.What == Accepted && s.Stream == stream && s.Seq == seq {
			return
		}
	}
	if !at.IsZero() {
		j.Steps = append(j.Steps, Step{At: at.UTC(), What: Accepted, Text: fmt.Sprintf("accepted as message %d of %s", seq, stream), Stream: stream, Seq: seq})
	}
}

func (s *search) looked(name string, r stream.Reach) {
	s.t.Looked = append(s.t.Looked, Looked{Stream: name, Messages: r.Read, Back: r.From, All: r.All})
}

func (s *search) letters(ctx context.Context) error {
	f := deadletter.Filter{API: s.API, Key: s.Key, Job: s.Job}
	reach, err := deadletter.NewestLetters(ctx, s.c.JetStream, f, s.Scan, s.buried)
	if errors.Is(err, deadletter.ErrNoStream) {
		return nil
	}
	s.looked(deadletter.Stream, reach)
	return err
}

func (s *search) buried(k deadletter.Kept) error {
	j := s.job(k.API, k.Key)
	if j == nil {
		return stream.ErrEnough
	}
	text := fmt.Sprintf("dead letter %d: %s: %s", k.Seq, k.Reason, k.Detail)
	j.Steps = append(j.Steps, Step{
		At: k.Stored.UTC(), What: Buried, Text: text, Stream: deadletter.Stream, Seq: k.Seq, Status: k.Status, Outcome: string(k.Reason), Billed: k.Billed,
	})
	if j.Dead == nil {
		j.Dead, j.isImported = &JobLetter{k.Seq, k.Reason, k.Detail, k.Billed}, !k.Imported.IsZero()
	}
	return nil
}

func (s *search) results(ctx context.Context) error {
	f := ledger.ResultFilter{API: s.API, Key: s.Key, Job: s.Job}
	reach, err := ledger.NewestResults(ctx, s.c.JetStream, f, s.Scan, s.answered)
	if errors.Is(err, ledger.ErrNoResults) {
		return nil
	}
	s.looked(ledger.ResultsStream, reach)
	return err
}

func (s *search) answered(r ledger.Result) error {
	j := s.job(r.API, r.Key)
	if j == nil {
		return stream.ErrEnough
	}
	if slices.ContainsFunc(j.Steps, func(had Step) bool { return had.What == Result && had.Seq == r.Seq }) {
		return nil // several records lead to it
	}
	j.accepted(r.Accepted, r.Queue, r.QueueSeq)
	j.Steps = append(j.Steps, Step{
		At: r.Stored.UTC(), What: Result, Text: fmt.Sprintf("result %d: status %d, %s", r.Seq, r.Status, cli.Count(r.Size, "byte")),
		Stream: ledger.ResultsStream, Seq: r.Seq, Status: r.Status, Outcome: ledger.Done,
	})
	j.resultSeq = max(j.resultSeq, r.Seq)
	if j.result == nil || j.result.Seq < r.Seq {
		if !s.shows(&r) {
			r.Body = nil // the id may have many jobs
		}
		j.result = &r
	}
	return nil
}

// calls reads the ledger backwards from its end. Some jobs may have been accepted before the part that it read. For
// these jobs it also reads the earlier records of their keys.
func (s *search) calls(ctx context.Context) error {
	reach, err := ledger.RecordsOf(ctx, s.c.JetStream, ledger.Filter{API: s.API, Key: s.Key}, s.Job, s.Scan, s.recorded)
	if errors.Is(err, ledger.ErrNoLedger) {
		return nil
	} else if err != nil {
		return err
	}
	s.looked(ledger.CallsStream, reach)
	return s.earlier(ctx, reach)
}

// earlier reads earlier records of jobs that were accepted before the part of the ledger that was already read.
func (s *search) earlier(ctx context.Context, reach stream.Reach) error {
	for _, j := range s.t.Jobs {
		first := j.firstAccepted()
		if reach.All || first.IsZero() || first.Add(-acceptLeeway).After(reach.From) {
			continue
		}
		f := ledger.Filter{API: j.API, Key: j.Key, Since: first.Add(-acceptLeeway)}
		if _, err := ledger.RecordsOf(ctx, s.c.JetStream, f, s.Job, s.Scan, s.recorded); err != nil {
			return err
		}
	}
	return nil
}

func (j *Job) firstAccepted() (first time.Time) {
	for i := range j.Steps {
		if s := &j.Steps[i]; s.What == Accepted && (first.IsZero() || s.At.Before(first)) {
			first = s.At
		}
	}
	return first
}

func (s *search) recorded(c *ledger.Record) error {
	j := s.job(c.API, c.Key)
	if j == nil {
		return stream.ErrEnough
	}
	what, id := Called, c.Origin()+"."+strconv.Itoa(c.Call)
	switch {
	case c.Inquiry != "":
		what, id = Asked, c.Origin()+".inquiry."+strconv.FormatInt(c.Started.UnixMicro(), 10)
	case c.Polled:
		what, id = Polled, c.Origin()+".operation"
	}
	if j.records[id] {
		return nil
	}
	j.records[id] = true
	j.resultSeq = max(j.resultSeq, c.Result)
	j.accepted(c.Accepted, c.Stream, c.Seq)
	if c.Outcome == ledger.Reused {
		j.Steps = append(j.Steps, Step{
			At: c.Started.UTC(), What: Forgone, Text: "not called: it got " + c.Detail, Stream: ledger.CallsStream, Seq: c.At, Status: c.Status,
			Outcome: c.Outcome, Ended: c.Ended.UTC(), Price: c.Price, Billed: c.Billed, accepted: c.Accepted, final: true,
		})
		return nil
	}
	j.Steps = append(j.Steps, Step{
		At: c.Started.UTC(), What: what, Text: callText(c), Stream: ledger.CallsStream, Seq: c.At, Call: c.Call, Status: c.Status, Outcome: c.Outcome,
		Ended: c.Ended.UTC(), Price: c.Price, Billed: c.Billed, HeldFor: schedule.WaitFor(c.HeldFor), HeldLimit: c.HeldLimit, HeldMS: c.HeldMS, Pack: packOf(c),
		accepted: c.Accepted, final: c.Final, origin: c.Origin(), found: httpcall.Finding(c.Inquiry),
	})
	return nil
}

// packOf returns the id of the pack that a call was for. It returns "" if the call was for one job.
func packOf(c *ledger.Record) string {
	if c.Pack == nil {
		return ""
	}
	return c.Pack.ID
}

// callText describes a call and its outcome.
func callText(c *ledger.Record) string {
	if c.Inquiry != "" {
		return inquiryText(c)
	}
	text := fmt.Sprintf("call %d", c.Call)
	if c.Polled && c.Operation != nil {
		text = fmt.Sprintf("the operation of call %d was polled and", c.Call)
	}
	switch {
	case c.Status != 0:
		text += fmt.Sprintf(" answered %d", c.Status)
	case !c.Sent:
		text += ": nothing was sent"
	default:
		text += ": no answer"
	}
	if took := c.Ended.Sub(c.Started); took > 0 {
		text += " after " + cli.Brief(took)
	}
	if p := c.Pack; p != nil {
		text += fmt.Sprintf(" in pack %s of %s", p.ID, cli.Count(p.Of, "job"))
	}
	text += ": " + c.Outcome
	if c.Detail != "" {
		text += ": " + c.Detail
	}
	if next := c.NotBefore.Time(); !c.Final && next.After(c.Ended) {
		text += "; again not before " + cli.ClockTime(next)
	}
	if op := c.Operation; op != nil && !c.Final {
		text += "; polled until " + cli.ClockTime(op.Until.Time())
	}
	if c.Polled && c.Price == ledger.Money(0) {
		return text // the call's own record has its price
	}
	switch c.Billed {
	case deadletter.BilledYes:
		text += "; billed " + c.Price
	case deadletter.BilledUnknown:
		text += "; perhaps billed " + c.Price
	}
	return text
}

// inquiryText describes an inquiry and what it found. Its price is left out: the record of the call has that.
func inquiryText(c *ledger.Record) string {
	of := fmt.Sprintf("call %d", c.Call)
	if c.Polled {
		of = "the operation of " + of
	}
	text := fmt.Sprintf("inquiry about %s: %s", of, strings.ReplaceAll(c.Inquiry, "_", " "))
	if c.Detail != "" {
		text += ": " + c.Detail
	}
	return text
}

func (s *search) events(ctx context.Context) error {
	f := deadletter.EventFilter{API: s.API, Key: s.Key}
	reach, err := deadletter.NewestEvents(ctx, s.c.JetStream, f, s.Scan, s.reported)
	if errors.Is(err, deadletter.ErrNoEvents) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	s.looked(deadletter.EventsStream, reach)
	return err
}

func (s *search) reported(e deadletter.KeptEvent) error {
	if e.Data["job"] != s.Job {
		return nil
	}
	j := s.job(e.API, e.Key)
	if j == nil {
		return stream.ErrEnough
	}
	if slices.ContainsFunc(j.Steps, func(had Step) bool { return had.What == Event && had.Seq == e.Seq }) {
		return nil // found near two letters
	}
	j.Steps = append(j.Steps, Step{
		At: e.Stored.UTC(), What: Event, Text: toldText(&e), Stream: deadletter.EventsStream, Seq: e.Seq, Type: string(e.Type),
	})
	return nil
}
