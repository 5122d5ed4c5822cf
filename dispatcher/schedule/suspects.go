package schedule

// MostDeaths is how many owners in a row may die with a call of one job under way before the job is parked. Intents
// count the deaths. If the api is not idempotent, the first death parks the job, because its call cannot be repeated.
// If the api is idempotent, the job may be innocent, since anything may have killed its owner. So one death makes no
// job a suspect, and a job is parked only after several deaths, in the last ones of which no other suspect's call was
// under way.
const (
	suspectFrom = 2
	aloneFrom   = 3
	MostDeaths  = 5
)

// manySuspects bounds the calls of suspects at once.
const manySuspects = 16

// suspects are jobs whose call was under way when two owners died: one of them may have killed both. They are
// called a few at a time. Those over which three owners died are called alone, so that the next death tells
// which job caused it. Only a job that was called alone is parked.
type suspects struct {
	underWay map[*Job]struct{} // being made ready or called
	alone    *Job              // the one beside which no other suspect may be called
	waiting  []*KeyQueue       // with a suspect that waits, each listed once
}

// mayCall reports whether suspicion lets a resting job be made ready. If not, it notes that the job's queue
// waits.
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

// clear lets the next suspect be called when one rests again or has ended.
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
		a.touch(q)
	}
}
