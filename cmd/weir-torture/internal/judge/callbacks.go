package judge

import "fmt"

// The types of posts.
const (
	postDone = "job.done"
	postDead = "job.dead"
)

// EndOf identifies the ends of one type that one job has.
type EndOf struct{ Kind, Job string }

// Posts are the posts that a receiver has accepted: how often each came, by the job's end and the post's id.
type Posts map[EndOf]map[string]int

// count returns how many ends of each type each job has.
func (e *Ends) count() map[EndOf]int {
	ends := map[EndOf]int{}
	for job, n := range e.Results {
		ends[EndOf{postDone, job}] += n
	}
	for _, l := range e.Letters {
		ends[EndOf{postDead, l.Job}]++
	}
	return ends
}

// Missing returns how many ends lack a post with an id of its own.
func Missing(ends *Ends, taken Posts) (n int) {
	for of, there := range ends.count() {
		n += max(0, there-len(taken[of]))
	}
	return n
}

// judgeCallbacks checks that each end was posted under an id of its own, and that nothing else was posted.
func (e *Evidence) judgeCallbacks(r *Report) {
	if e.Posted == nil {
		return
	}
	r.Callbacks, r.PostsRefused = true, e.PostsRefused
	ends, owner := e.Ends.count(), map[string]EndOf{}
	for of, there := range ends {
		if n := len(e.Posted[of]); n < there {
			r.Unposted += there - n
			r.example("not posted", fmt.Sprintf("%s of %s: %d ends, %d ids", of.Kind, of.Job, there, n))
		}
	}
	for of, ids := range e.Posted {
		if len(ids) > ends[of] {
			r.Misposted += len(ids) - ends[of]
			r.example("posted under several ids, or without an end",
				fmt.Sprintf("%s of %s: %d ends, %v", of.Kind, of.Job, ends[of], ids))
		}
		for id, times := range ids {
			r.Posted++
			r.PostedAgain += times - 1
			if other, taken := owner[id]; taken && other != of {
				r.Misposted++
				r.example("two ends under one id", id)
			}
			owner[id] = of
		}
	}
}
