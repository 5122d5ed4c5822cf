package jobstory

import (
	"context"

	"weir/cmd/weir/internal/serve/admin"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// postings adds to each job that has ended whether its end was posted to the callback of its api. It asks one replica
// for all of them. If none answers, their queues could not be asked either, and the timeline says that.
func (s *search) postings(ctx context.Context) {
	var ended []*Job
	var ends []admin.EndPlace
	for _, j := range s.t.Jobs {
		if end := j.end(); end.Seq != 0 {
			ended, ends = append(ended, j), append(ends, end)
		}
	}
	if len(ends) == 0 {
		return
	}
	for i, p := range admin.PostingsOf(ctx, s.c, s.Job, ends) {
		if j := ended[i]; p != nil {
			j.judge(p)
			j.Callback = &Callback{*p, p.Text()}
		}
	}
}

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

// judge corrects what a replica says of an end by what the story knows of it: weir does not post the letters that were
// imported, and cannot post a result that is gone. Of such a result the replica cannot know that it was posted, because
// the stream may have removed it unread.
func (j *Job) judge(p *admin.Posting) {
	isGone := j.State == Done && (j.result == nil || j.result.Seq < j.resultSeq)
	switch {
	case j.State == Dead && j.isImported:
		*p = admin.Posting{State: admin.PostingNone, Why: "`weir dead import` stored its letter"}
	case isGone && (p.State == admin.PostingWaits || p.State == admin.PostingTried):
		*p = admin.Posting{State: admin.PostingNone, Why: "its result is not kept any more"}
	case isGone && p.State == admin.Posted:
		*p = admin.Posting{State: admin.PostingSettled}
	}
}
