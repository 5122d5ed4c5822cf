package weirtest

import (
	"encoding/json"
	"time"

	"weir/cmd/weir/internal/serve/admin"
	"weir/dispatcher/schedule"
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
