package jobstory

import (
	"context"

	"weir/cmd/weir/internal/serve/admin"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// postings adds to each job that has ended whether its end was posted to the callback of its api. It asks one replica
// for all of them. If none answers, their queues could not be asked either, and the timeline says that.
func (s *search) postings(ctx context.Context) error {
	var ended []*Job
	var ends []admin.EndPlace
	for _, j := range s.t.Jobs {
		if end := j.end(); end.Seq != 0 {
			ended, ends = append(ended, j), append(ends, end)
		}
	}
	if len(ends) == 0 {
		return nil
	}
	for i, p := range admin.PostingsOf(ctx, s.c, s.Job, ends) {
		if p == nil {
			continue
		}
		j := ended[i]
		if err := s.lookAgain(ctx, j); err != nil {
			return err
		}
		j.judge(p)
		j.Callback = &Callback{*p, p.Text()}
	}
	return nil
}

// lookAgain reads the newest result of a done job if the search has not found it: the search may not have reached it.
func (s *search) lookAgain(ctx context.Context, j *Job) error {
	if j.State != Done || !j.lacksResult() {
		return nil
	}
	r, err := ledger.ResultAt(ctx, s.c.JetStream, j.resultSeq)
	if err == nil && r != nil && r.API == j.API && r.Key == j.Key && r.Job == j.Job {
		r.Body = nil
		j.result = r
	}
	return err
}

// lacksResult reports whether the newest result of the job was not read.
func (j *Job) lacksResult() bool { return j.result == nil || j.result.Seq < j.resultSeq }

// end returns the place of the job's newest end. Its sequence is 0 if the job has not ended, or if the place is not
// known.
func (j *Job) end() admin.EndPlace {
	switch j.State {
	case Dead:
		return admin.EndPlace{API: j.API, Stream: deadletter.Stream, Seq: j.Dead.Seq}
	case Done:
		return admin.EndPlace{API: j.API, Stream: ledger.ResultsStream, Seq: j.resultSeq}
	case Queued, Unknown:
	}
	return admin.EndPlace{}
}

// judge corrects what a replica says of an end by what the story knows of it. weir does not post the letters that were
// imported, and posts no result that is not kept any more. The replica cannot know whether such a result was posted: the
// stream may have removed it unread, or after a post that is not noted yet.
func (j *Job) judge(p *admin.Posting) {
	switch {
	case j.State == Dead && j.isImported:
		*p = admin.Posting{State: admin.PostingNone, Why: "`weir dead import` stored its letter"}
	case j.State == Done && j.lacksResult() && p.State != admin.PostingGivenUp && p.State != admin.PostingUnknown:
		*p = admin.Posting{State: admin.PostingSettled, Why: "its result is not kept any more"}
	}
}
