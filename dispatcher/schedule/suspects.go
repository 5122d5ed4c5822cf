package schedule

// MostDeaths is how many owners in a row may die with a call of one job under way before the job is parked. Intents
// count the deaths. If the api is not idempotent, the first death parks the job, because its call cannot be repeated.
// If the api is idempotent, the job may be innocent, because anything may have killed its owner. So one death does not
// make a job a suspect. A job is parked only after several deaths, and in the last of these no other suspect's call was
// under way.
const (
	suspectFrom = 2
	aloneFrom   = 3
	MostDeaths  = 5
)

// manySuspects bounds the suspects that are called at the same time.
const manySuspects = 16

// suspects holds jobs whose call was under way when two owners died: one of the jobs may have killed both. They are
// called a few at a time. A job whose call was under way when three owners died is called alone, so that the next death
// tells which job caused it. Only a job that was called alone is parked.
type suspects struct {
	underWay map[*Job]struct{} // suspects that are being made ready or called
	alone    *Job              // the suspect beside which no other may be called
	waiting  []*KeyQueue       // queues with a suspect that waits, each listed once
}

// mayCall reports whether suspicion lets a resting job be made ready. If not, it notes that the job's queue waits for
// another suspect.
func (s *suspects) mayCall(j *Job) bool {
	switch {
	case j.Deaths < suspectFrom,
		s.alone == nil && j.Deaths < aloneFrom && len(s.underWay) < manySuspects,
		s.alone == nil && len(s.underWay) == 0:
		return true
	}
	if q := j.Queue; !q.entry.suspect {
		q.entry.suspect = true
		s.waiting = append(s.waiting, q)
	}
	return false
}

func (s *suspects) call(j *Job) {
	if j.Deaths < suspectFrom {
		return
	}
	if s.underWay == nil {
		s.underWay = map[*Job]struct{}{}
	}
	s.underWay[j] = struct{}{}
	if j.Deaths >= aloneFrom {
		s.alone = j
	}
}

// clear notes that a suspect rests again or has ended, so that the next one may be called.
func (s *suspects) clear(j *Job, a *agenda) {
	if _, ok := s.underWay[j]; !ok {
		return
	}
	delete(s.underWay, j)
	if s.alone == j {
		s.alone = nil
	}
	waiting := s.waiting
	s.waiting = nil
	for _, q := range waiting {
		q.entry.suspect = false
		a.Touch(q)
	}
}
