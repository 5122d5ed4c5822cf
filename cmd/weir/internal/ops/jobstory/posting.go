package jobstory

import (
	"context"

	"weir/cmd/weir/internal/serve/admin"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// postings notes for each ended job whether its end was posted to the callback of its api. It asks one replica about
// all ends. If no replica answers, the timeline says so. After a result that cannot be read, postings reads no further
// ones.
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
	found, err := admin.PostingsOf(ctx, s.c, s.Job, ends)
	if err != nil {
		s.t.Silent = append(s.t.Silent, "not known whether a callback has got the job's end: "+err.Error())
		return
	}
	var unread error
	for i, p := range found {
		if p == nil {
			continue
		}
		j := ended[i]
		if unread == nil {
			unread = s.c.Explain(s.lookAgain(ctx, j))
		}
		j.judge(p, unread)
		j.Callback = &Callback{*p, p.Text()}
	}
}

// lookAgain reads the newest result of a done job if the search has not found it. The search may have ended before it
// came to that result.
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

// judge corrects what a replica says about an end by what the story knows about the end. weir posts no imported letter,
// and no result that its stream has removed. The replica cannot know whether a removed result was posted: it may have
// been removed before weir read it, or after a post that is not noted yet. unread is the error that kept results from
// being read; with it, it is unknown whether the job's result is kept.
func (j *Job) judge(p *admin.Posting, unread error) {
	switch {
	case j.State == Dead && j.isImported:
		*p = admin.Posting{State: admin.PostingNone, Why: "`weir dead import` stored its letter"}
	case j.State != Done || !j.lacksResult() || p.State == admin.PostingGivenUp || p.State == admin.PostingUnknown:
	case unread != nil:
		*p = admin.Posting{State: admin.PostingUnknown, Why: "its result cannot be read: " + unread.Error()}
	default:
		*p = admin.Posting{State: admin.PostingSettled, Why: "its result is not kept any more"}
	}
}
