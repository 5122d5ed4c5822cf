package schedule

// Cancelled is the result of a request to cancel a job: a closed set.
type Cancelled string

// The results.
const (
	CancelTaken   Cancelled = "cancelled" // the job becomes a letter
	CancelCalling Cancelled = "calling"   // its call runs, or its outcome is being stored: too late
	CancelReading Cancelled = "reading"   // the owner still reads its queue after a start or a takeover: try again
	CancelGone    Cancelled = "gone"      // there is no such job, or it has ended
)

// Cancel ends a job that is not being called: it never takes a slot again, and becomes a letter.
func (s *Schedule) Cancel(key string, seq uint64) (*Job, Cancelled) {
	q := s.byKey[key]
	switch {
	case q == nil || !q.has(seq):
		return nil, CancelGone
	case !q.Partition.Open, q.Unread:
		return nil, CancelReading
	}
	j := q.Job(seq)
	if j == nil {
		j = s.Extract(q, seq)
	}
	switch {
	case j.Phase == calling || j.Phase == settling:
		return nil, CancelCalling
	case j.cancelled:
		return j, CancelTaken
	}
	j.cancelled, q.cancels = true, true
	s.Touch(q)
	return j, CancelTaken
}
