package weirtest

import (
	"encoding/json"
	"fmt"
	"time"

	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/weirtest/producer"
	"weir/dispatcher/schedule"

	"github.com/nats-io/nats.go"
)

func (r *Rig) PutPause(key string) {
	r.T.Helper()
	word, err := json.Marshal(schedule.Pause{At: time.Now(), By: "test"})
	if err == nil {
		_, err = r.Control().Put(r.T.Context(), admin.PauseEntry("pay", key), word)
	}
	if err != nil {
		r.T.Fatal(err)
	}
	r.Eventually("the pause to be in force", func() bool { _, ok := r.Worker.Parts().Dispatcher.Desk.Pauses("pay")[key]; return ok })
}

// WhilePaused runs what while the api pay is paused.
func (r *Rig) WhilePaused(what func()) {
	r.T.Helper()
	r.PutPause("")
	what()
	if err := r.Control().Delete(r.T.Context(), admin.PauseEntry("pay", "")); err != nil {
		r.T.Fatal(err)
	}
}

// Overflowed fills the buckets of several keys during a pause, and returns the number of letters.
func (r *Rig) Overflowed(api string, keys, each int) int {
	r.T.Helper()
	r.WhilePaused(func() {
		var jobs []*nats.Msg
		for i := range keys * each {
			jobs = append(jobs, producer.JobFor(api, fmt.Sprint("k", i%keys), fmt.Sprint("job-", i)))
		}
		producer.Fill(r.T, r.NC, jobs)
	})
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting(api) == 0 })
	return r.Store().LetterCount()
}
