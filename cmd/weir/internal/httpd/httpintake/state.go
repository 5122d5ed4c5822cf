package httpintake

import (
	"cmp"
	"context"
	"net/http"

	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/ops/jobstory"
	"weir/ingest"
)

// State is where a job is, as in `weir job --json`, with its result once it is done.
type State struct {
	*jobstory.Job
	Result *jobstory.KeptResult `json:"result,omitempty"`
}

// get answers with the state of a job. With ?key= that is cheap. Without it weir searches the streams for the id.
func (d *Door) get(w http.ResponseWriter, r *http.Request, _ console.Actor) {
	api, key, id := r.PathValue("api"), r.URL.Query().Get("key"), r.PathValue("id")
	if err := cmp.Or(ingest.CheckChoice(api, key), ingest.CheckJobID(id)); err != nil {
		refuse(http.StatusBadRequest, err.Error()).write(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), lookupWait)
	defer cancel()
	if d.lookups.Acquire(ctx, 1) != nil {
		unavailable("too many jobs are looked up at once: try again").write(w)
		return
	}
	defer d.lookups.Release(1)
	state, no := d.state(ctx, api, key, id)
	if no != nil {
		no.write(w)
		return
	}
	console.WriteJSON(w, http.StatusOK, state)
}

func (d *Door) state(ctx context.Context, api, key, id string) (*State, *Problem) {
	found, err := d.Find(ctx, api, key, id)
	if err != nil {
		d.Log.Info("a job could not be looked up", "api", api, "err", err)
		return nil, unavailable("the job could not be looked up: try again")
	}
	switch {
	case len(found.Jobs) > 1:
		p := refuse(http.StatusConflict, "the id stands under several keys: add ?key= with one of them")
		p.Job = id
		for _, j := range found.Jobs {
			p.Keys = append(p.Keys, j.Key)
		}
		return nil, p
	case len(found.Jobs) == 0 && len(found.Silent) > 0:
		return nil, unavailable("nothing is known of the job so far, and not every queue could be asked: try again")
	case len(found.Jobs) == 0:
		p := refuse(http.StatusNotFound, "no such job: "+howFar(found, key))
		p.Job = id
		return nil, p
	}
	state := &State{Job: found.Jobs[0]}
	if seq := state.ResultSeq(); seq != 0 && state.State == jobstory.Done {
		if state.Result, err = d.Result(ctx, seq); err != nil {
			d.Log.Info("could not read a result", "api", api, "job_id", id, "err", err)
			return nil, unavailable("the job is done, and its result could not be read: try again")
		}
	}
	return state, nil
}

// howFar says whether the search for a job that was not found covered everything that is stored.
func howFar(t *jobstory.Timeline, key string) string {
	for _, l := range t.Looked {
		if !l.All && key == "" {
			return "not all that is kept was looked through; with ?key= it is"
		}
	}
	return "it was not accepted, or all that was kept of it has gone"
}
