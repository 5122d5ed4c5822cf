package dispatcher

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
func (s *schedule) cancel(key string, seq uint64) (*task, Cancelled) {
	l := s.lines[key]
	switch {
	case l == nil || l.rank(seq) == 0:
		return nil, CancelGone
	case !l.part.open, l.unread:
		return nil, CancelReading
	}
	t := l.task(seq)
	if t == nil {
		t = l.extract(seq)
	}
	switch {
	case t.phase == calling || t.phase == settling:
		return nil, CancelCalling
	case t.cancelled:
		return t, CancelTaken
	}
	t.cancelled = true
	l.cancels++
	s.touch(l)
	return t, CancelTaken
}

// cancelDue ends what is cancelled and neither being made ready nor being asked for.
func (s *schedule) cancelDue(l *line, fx *effects) {
	if l.cancels == 0 {
		return
	}
	for _, t := range l.tasks {
		if !t.cancelled {
			continue
		}
		switch t.phase {
		case granted:
			s.giveBack(l, t, fx)
			s.unstage(t)
		case ready:
			s.unstage(t)
		case resting:
			t.phase = settling
		default:
			continue
		}
		t.cancelled = false
		l.cancels--
		fx.cancel = append(fx.cancel, t)
	}
}
