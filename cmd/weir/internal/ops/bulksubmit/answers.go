package bulksubmit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// hear processes the answer to a batch.
func (d *delivery) hear(msg *nats.Msg, now time.Time) error {
	flight, _ := strconv.Atoi(msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:])
	jobs := d.flights[flight] // none for a second answer
	delete(d.flights, flight)
	var answers []ingest.BatchAnswer
	var whole error                                              // the answer to all jobs of the batch
	if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" { // the server itself answers this if no intake listens
		whole = fmt.Errorf("%w: no replica accepts jobs", ErrSilent)
	} else {
		answers, whole = ingest.ParseBatch(msg.Data, len(jobs))
	}
	// Answers that settle come first. Another answer may end the run, and the receipts behind it would be lost.
	for _, settled := range []bool{true, false} {
		for i, s := range jobs {
			a := ingest.BatchAnswer{Err: whole, JSON: msg.Data}
			if whole == nil {
				a = answers[i]
			}
			if d.open[s.line] != s || settles(a.Err) != settled {
				continue // another answer has ended the job, or the answer belongs to the other pass
			}
			if err := d.hearOf(s, a, flight, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// settles reports whether an answer is a receipt, or a refusal other than 503.
func settles(err error) bool {
	var refusal *ingest.Refusal
	return err == nil || errors.As(err, &refusal) && refusal.Code != ingest.Unavailable
}

// hearOf processes the answer to one job of a batch.
func (d *delivery) hearOf(s *sending, a ingest.BatchAnswer, flight int, now time.Time) error {
	last := s.flight == flight
	receipt, err := a.Receipt, a.Err
	var refusal *ingest.Refusal
	switch {
	case errors.Is(err, ErrSilent):
		if last && d.land(s) {
			s.bucket.inFlight--
			return d.again(s, now, err)
		}
		return nil
	case errors.Is(err, ingest.ErrNoAnswer): // weir itself does not know whether the job is stored
		if last && s.flies {
			return d.unheard(s, now, fmt.Errorf("weir does not know whether it is stored: %w", ingest.ErrNoAnswer))
		}
		return nil
	case err == nil:
		flew := d.land(s)
		d.useful, d.trouble = true, time.Time{}
		if !flew {
			s.bucket.inFlight++ // taken subtracts the job again
		}
		s.bucket.taken(receipt.Position, now)
		if err := d.Journal.note(s.id, wordTaken, now); err != nil {
			return err
		}
		o := Outcome{Verdict: Taken, Answer: a.JSON}
		if receipt.Duplicate {
			o.Verdict = Known
		}
		return d.end(s, o)
	case errors.As(err, &refusal):
		if last && d.land(s) { // otherwise it is about an earlier try, and the job already waits for its next one
			return d.refused(s, refusal, a.JSON, now)
		}
		return nil
	}
	return fmt.Errorf("line %d: %w", s.line, err) // a stream has answered instead of weir
}

// land removes a job from the jobs under way. It reports whether the job was under way.
func (d *delivery) land(s *sending) bool {
	if !s.flies {
		return false
	}
	s.flies = false
	d.flying--
	d.bytes -= len(s.job.Body)
	return true
}

// refused handles weir's refusal of a job.
func (d *delivery) refused(s *sending, r *ingest.Refusal, answer []byte, now time.Time) error {
	if r.Code == ingest.Unavailable {
		s.bucket.inFlight--
		return d.again(s, now, fmt.Errorf("weir refuses with 503: %s", r.Description))
	}
	d.useful, d.trouble = true, time.Time{}
	if !s.unheard {
		s.first = time.Time{}
		if err := d.Journal.note(s.id, wordRefused, now); err != nil {
			return err
		}
	}
	if r.Code != ingest.Throttled {
		s.bucket.inFlight--
		return d.end(s, Outcome{Verdict: Refused, Answer: answer, Err: r})
	}
	late := !s.job.Deadline.IsZero() && now.Add(r.RetryAfter).After(s.job.Deadline)
	if d.ReportFull || late {
		s.bucket.inFlight--
		return d.end(s, Outcome{Verdict: Full, Answer: answer, Err: r})
	}
	s.bucket.full(max(10*time.Millisecond, r.RetryAfter), now)
	d.requeue(s, now)
	return nil
}

// requeue puts a job back among the waiting jobs of its bucket, in the order of the file.
func (d *delivery) requeue(s *sending, now time.Time) {
	b := s.bucket
	at, _ := slices.BinarySearchFunc(b.waiting, s.line, func(other *sending, line int) int { return cmp.Compare(other.line, line) })
	b.waiting = slices.Insert(b.waiting, at, s)
	d.waiting++
	d.held += len(s.job.Body)
	d.schedule(b, now)
}

// again makes a job wait for againAfter and then be sent again. It returns why if the last useful answer came more than
// patience ago, or if no intake answers and this run has had no useful answer.
func (d *delivery) again(s *sending, now time.Time, why error) error {
	if d.trouble.IsZero() {
		d.trouble = now
	}
	if errors.Is(why, ErrSilent) && !d.useful || now.Sub(d.trouble) > patience {
		return why
	}
	d.notUntil = now.Add(againAfter)
	d.requeue(s, now)
	return nil
}

// look handles the jobs for which no answer came in time, and reports the progress.
func (d *delivery) look(now time.Time) error {
	ended := 0
	for _, n := range d.tally.Ended {
		ended += n
	}
	if err := errors.Join(d.Journal.write(), d.Progress(ended, d.waiting)); err != nil {
		return err
	}
	if d.tally.Stopped {
		return nil
	}
	for _, s := range d.open {
		if !s.flies || now.Sub(s.sentAt) < answerAfter {
			continue
		}
		if err := d.unheard(s, now, fmt.Errorf("%w within %s", ErrSilent, answerAfter)); err != nil {
			return err
		}
	}
	for flight, jobs := range d.flights {
		if !slices.ContainsFunc(jobs, func(s *sending) bool { return d.open[s.line] == s }) {
			delete(d.flights, flight) // its answer would say nothing new
		}
	}
	return nil
}

// unheard handles a job under way whose last try has no answer. It sends the job again, unless weir may have forgotten
// the job's id.
func (d *delivery) unheard(s *sending, now time.Time, why error) error {
	d.land(s)
	s.bucket.inFlight--
	s.unheard = true
	if d.mayBeForgotten(s, now) {
		return d.giveUp(s)
	}
	return d.again(s, now, why)
}

// mayBeForgotten reports whether weir may have accepted a job in an earlier try and no longer know its id. It would take
// the job as a new one, and call it twice.
func (d *delivery) mayBeForgotten(s *sending, now time.Time) bool {
	return s.unheard && !d.remembers(now.Sub(s.first))
}

// remembers reports whether weir certainly still knows an id that it got this long ago. It allows for clocks that run
// unequally, and for the time that a message is under way.
func (d *delivery) remembers(age time.Duration) bool { return age >= 0 && age < d.Remembered/10*9 }

// giveUp ends a job that may not be sent again.
func (d *delivery) giveUp(s *sending) error {
	if last, known := d.Journal.of(s.id); known && last.word == wordTaken {
		return d.end(s, Outcome{Verdict: Before, At: last.at})
	}
	return d.end(s, Outcome{Verdict: Unsure, At: s.first, Err: errors.New("no answer came, and weir may not know the job's id any more, so it is not sent again")})
}

// end reports the outcome of a line and forgets the line's job.
func (d *delivery) end(s *sending, o Outcome) error {
	delete(d.open, s.line)
	d.tally.Ended[o.Verdict]++
	o.Line, o.API, o.Key, o.ID = s.line, s.api, s.key, s.job.ID
	if s.bucket != nil {
		d.schedule(s.bucket, time.Now())
	}
	return d.Report(o)
}
