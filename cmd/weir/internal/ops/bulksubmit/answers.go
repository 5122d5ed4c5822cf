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

// hear processes one answer to a job.
func (d *delivery) hear(msg *nats.Msg, now time.Time) error {
	line, err := strconv.Atoi(msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:])
	s := d.open[line]
	if err != nil || s == nil {
		return nil // a second answer to a job that was sent twice
	}
	flew := d.land(s)
	if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" { // the server itself answers this if no intake listens
		if flew {
			s.bucket.inFlight--
			return d.again(s, now, fmt.Errorf("%w: no replica accepts jobs", ErrSilent))
		}
		return nil
	}
	receipt, err := ingest.ParseAnswer(msg.Data)
	var refusal *ingest.Refusal
	switch {
	case err == nil:
		d.useful, d.trouble = true, time.Time{}
		if !flew {
			s.bucket.inFlight++ // taken subtracts the job again
		}
		s.bucket.taken(receipt.Position, now)
		if err := d.Journal.note(s.id, wordTaken, now); err != nil {
			return err
		}
		o := Outcome{Verdict: Taken, Answer: msg.Data}
		if receipt.Duplicate {
			o.Verdict = Known
		}
		return d.end(s, o)
	case errors.As(err, &refusal):
		return d.refused(s, refusal, msg.Data, flew, now)
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
func (d *delivery) refused(s *sending, r *ingest.Refusal, answer []byte, flew bool, now time.Time) error {
	if !flew {
		return nil // the refusal is of an earlier try; the job already waits for its next one
	}
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
		d.land(s)
		s.bucket.inFlight--
		s.unheard = true
		if age := now.Sub(s.first); s.tries > 1 && age > max(answerAfter*2, d.Remembered/10*9) {
			if err := d.end(s, Outcome{Verdict: Unsure, At: s.first, Err: errors.New("no answer came, and it is too late to send the job again")}); err != nil {
				return err
			}
			continue
		}
		if err := d.again(s, now, fmt.Errorf("%w within %s", ErrSilent, answerAfter)); err != nil {
			return err
		}
	}
	return nil
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
