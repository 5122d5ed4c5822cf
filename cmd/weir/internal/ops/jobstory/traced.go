package jobstory

import (
	"context"
	"errors"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/ops/jobindex"
	"weir/cmd/weir/internal/serve/admin"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go/jetstream"
)

// indexed asks the index of ended jobs for the traces of the id. It returns false if a search of the streams could find
// more.
func (s *search) indexed(ctx context.Context) bool {
	if s.Search {
		return false
	}
	t, err := admin.TracesOf(ctx, s.c, s.Job)
	if err != nil || t.Doubtful {
		return false
	}
	for _, in := range []jobindex.Reach{t.InCalls, t.InLetters} {
		if !in.All() && (s.Scan == 0 || in.Messages < s.Scan) && len(t.Calls)+len(t.Letters) == 0 {
			return false
		}
	}
	s.traces, s.isIndexed = t, true
	s.t.Looked = []Looked{
		{Stream: deadletter.Stream, Messages: t.InLetters.Messages, Back: t.InLetters.Back, All: t.InLetters.All()},
		{Stream: ledger.CallsStream, Messages: t.InCalls.Messages, Back: t.InCalls.Back, All: t.InCalls.All()},
	}
	return true
}

// chooses reports whether the search is for this job. The traces may include other jobs, because the index compares
// hashes of ids.
func (s *search) chooses(api, key, job string) bool {
	return job == s.Job && (s.API == "" || api == s.API) && (s.Key == "" || key == s.Key)
}

func (s *search) tracedLetters(ctx context.Context) error {
	if len(s.traces.Letters) == 0 {
		return nil
	}
	b, err := deadletter.OpenBrowser(ctx, s.c.JetStream)
	if err != nil {
		return err
	}
	for _, seq := range s.traces.Letters {
		k, err := b.GetSoon(ctx, seq)
		switch {
		case errors.Is(err, deadletter.ErrNoLetter):
			s.isLetterGone = true
		case err != nil:
			return err
		case s.chooses(k.API, k.Key, k.JobID):
			if err := s.buried(k); err != nil {
				return ignoreEnough(err)
			}
		}
	}
	return nil
}

// tracedCalls reads the records of the id's calls, and their results. Some jobs may have been accepted before the part
// of the ledger that the index has. For these jobs it also searches the records of their keys.
func (s *search) tracedCalls(ctx context.Context) error {
	if err := s.tracedRecords(ctx); err != nil {
		return err
	}
	return s.earlier(ctx, stream.Reach{From: s.traces.InCalls.Back, All: s.traces.InCalls.All()})
}

func (s *search) tracedRecords(ctx context.Context) error {
	for _, seq := range s.traces.Calls {
		c, err := ledger.OfJob(ctx, s.c.JetStream, seq, s.Job)
		if err != nil {
			return err
		}
		if c == nil || !s.chooses(c.API, c.Key, c.Job) {
			continue // removed meanwhile, or of another id
		}
		if err := s.recorded(c); err != nil {
			return ignoreEnough(err)
		}
		if err := s.resultOf(ctx, c); err != nil {
			return ignoreEnough(err)
		}
	}
	return nil
}

func (s *search) resultOf(ctx context.Context, c *ledger.Record) error {
	if !c.Final || c.Outcome != ledger.Done && c.Outcome != ledger.Reused && c.Inquiry != string(httpcall.Processed) {
		return nil
	}
	r, err := ledger.ResultFor(ctx, s.c.JetStream, c)
	if err != nil || r == nil {
		return err
	}
	return s.answered(*r)
}

// eventsWithin is how long after a job's end its events may be stored, with clocks that differ. mostEvents is how many
// events of the key are examined.
const (
	eventsWithin = 5 * time.Second
	mostEvents   = 500
)

// tracedEvents reads the events of the id. If the index does not have all events, it reads the events around the ends
// of the jobs, and the events that the bodies of their letters were revealed.
func (s *search) tracedEvents(ctx context.Context) error {
	if s.traces.HasEvents() {
		return s.indexedEvents(ctx)
	}
	if len(s.t.Jobs) == 0 {
		return s.events(ctx) // a job whose letter was purged may still have events
	}
	for _, j := range s.t.Jobs {
		for _, step := range j.Steps {
			switch {
			case step.What == Buried:
				kind := deadletter.DeadEvent
				if deadletter.Reason(step.Outcome) == deadletter.Overflow {
					kind = deadletter.ThrottledEvent
				}
				if err := s.eventsNear(ctx, j, kind, step.At.Add(-clocks), step.At.Add(eventsWithin)); err != nil {
					return err
				}
				if err := s.eventsNear(ctx, j, deadletter.RevealedEvent, step.At.Add(-clocks), time.Now().Add(clocks)); err != nil {
					return err
				}
			case (step.What == Called || step.What == Polled) && step.final && step.Outcome != ledger.Done && j.Dead == nil: // the job's letter is gone
				if err := s.eventsNear(ctx, j, deadletter.DeadEvent, step.Ended.Add(-clocks), step.Ended.Add(eventsWithin)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *search) indexedEvents(ctx context.Context) error {
	if len(s.t.Jobs) == 0 {
		in := s.traces.InEvents
		s.t.Looked = append(s.t.Looked, Looked{Stream: deadletter.EventsStream, Messages: in.Messages, All: true})
	}
	for _, seq := range s.traces.Events {
		e, err := deadletter.EventAt(ctx, s.c.JetStream, seq, s.Job)
		if err != nil {
			return ignoreEnough(err)
		}
		if e == nil || !s.chooses(e.API, e.Key, s.Job) {
			continue // removed meanwhile, or of another id
		}
		if err := s.reported(*e); err != nil {
			return ignoreEnough(err)
		}
	}
	return nil
}

func (s *search) eventsNear(ctx context.Context, j *Job, kind deadletter.EventType, from, until time.Time) error {
	err := deadletter.EventsNear(ctx, s.c.JetStream, deadletter.EventFilter{Type: kind, API: j.API, Key: j.Key, Since: from}, until, mostEvents, s.reported)
	return ignoreEnough(err)
}

// ignoreEnough returns nil if err is stream.ErrEnough, or says that a stream does not exist yet. Otherwise it returns
// err.
func ignoreEnough(err error) error {
	if errors.Is(err, stream.ErrEnough) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}
