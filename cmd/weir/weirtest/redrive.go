package weirtest

import (
	"encoding/json"

	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"

	"github.com/nats-io/nats.go/jetstream"
)

// Redrive runs `weir dead redrive` against the rig's server. It returns the tally and the exit code.
func (r *Rig) Redrive(args ...string) (did deadletter.Tally, code int) {
	r.T.Helper()
	out, code := r.Command(append([]string{"dead", "redrive", "--yes", "--json"}, args...)...)
	if out != "" {
		if err := json.Unmarshal([]byte(out), &did); err != nil {
			r.T.Fatalf("%s: %v", out, err)
		}
	}
	return did, code
}

// PerBody counts the api's calls by body.
func (r *Rig) PerBody() map[string]int {
	calls := map[string]int{}
	for _, a := range r.API.All() {
		calls[string(a.Body)]++
	}
	return calls
}

// Skips returns how many letters of a key a redrive would skip, by reason.
func (r *Rig) Skips(key string) map[deadletter.Skip]int {
	out, _ := r.Command("dead", "redrive", "--key", key, "--dry-run", "--json")
	var plan deadview.RedrivePlan
	if err := json.Unmarshal([]byte(out), &plan); err != nil {
		r.T.Fatalf("%s: %v", out, err)
	}
	return plan.Skipped
}

// LetterCount returns the number of letters.
func (r *Rig) LetterCount() int {
	r.T.Helper()
	s, err := r.JS.Stream(r.T.Context(), deadletter.Stream)
	if err != nil {
		r.T.Fatal(err)
	}
	info, err := s.Info(r.T.Context(), jetstream.WithSubjectFilter("weir.dead.>"))
	if err != nil {
		r.T.Fatal(err)
	}
	return int(info.State.Msgs)
}
