package weirtest

import (
	"time"
)

// CheckHeld checks that no later call breaks the hold of length least that the first answer asked for. holds says
// whether that hold is for the api or for the key. The job of the key other was submitted at sent.
func (r *Rig) CheckHeld(holds string, least time.Duration, sent int64) {
	r.T.Helper()
	arrivals := r.API.All()
	until := arrivals[0].At + int64(least)
	for _, a := range arrivals[1:] {
		if a.At < until && (a.Key == arrivals[0].Key || holds == "api") {
			r.T.Errorf("%s %q was called %v before the hold was over", a.Key, a.Body, time.Duration(until-a.At))
		}
		if a.Key == "other" && holds == "key" && r.Referee().WaitedFor(sent, a.At, until) {
			r.T.Errorf("the hold of one key held another")
		}
	}
}
