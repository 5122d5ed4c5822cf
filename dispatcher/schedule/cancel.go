package schedule

// Cancelled is what became of the wish to cancel a job: a closed set.
type Cancelled string

// What can become of it.
const (
	CancelTaken   Cancelled = "cancelled" // the job becomes a letter
	CancelCalling Cancelled = "calling"   // its call runs, or its outcome is being stored: too late
	CancelReading Cancelled = "reading"   // its queue is being read after a start or a takeover: try again
	CancelGone    Cancelled = "gone"      // there is no such job, or it has ended
)

// cancel ends a job that is not being called: it never takes a slot again, and becomes a letter.
func (s *Schedule) Cancel(key string, seq uint64) (*Job, Cancelled) {
	l := s.ByKey[key]
	switch {
	case l == nil || l.Rank(seq) == 0:
		return nil, CancelGone
	case !l.Partition.Open, l.Unread:
		return nil, CancelReading
	}
	t := l.Job(seq)
	if t == nil {
		t = l.Extract(seq)
	}
	switch {
	case t.Phase == calling || t.Phase == Settling:
		return nil, CancelCalling
	case t.cancelled:
		return t, CancelTaken
	}
	t.cancelled = true
	l.cancels++
	s.Touch(l)
	return t, CancelTaken
}

// cancelDue ends what is cancelled and neither being made ready nor being asked for.
func (s *Schedule) cancelDue(l *KeyQueue, fx *Effects) {
	if l.cancels == 0 {
		return
	}
	for _, t := range l.Jobs {
		if !t.cancelled {
			continue
		}
		switch t.Phase {
		case granted:
			s.giveBack(l, t, fx)
			s.Unstage(t)
		case ready:
			s.Unstage(t)
		case resting:
			t.Phase = Settling
		default:
			continue
		}
		t.cancelled = false
		l.cancels--
		fx.Cancel = append(fx.Cancel, t)
	}
}
