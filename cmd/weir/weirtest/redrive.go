package weirtest

import (
	"encoding/json"

	"weir/cmd/weir/internal/control"
	"weir/deadletter"
)

// Redrive runs the command against the rig's server. It returns the tally and the exit code.
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

// Skips returns which letters of a key a dry run would leave alone, by reason.
func (r *Rig) Skips(key string) map[deadletter.Skip]int {
	out, _ := r.Command("dead", "redrive", "--key", key, "--dry-run", "--json")
	var plan control.RedrivePlan
	if err := json.Unmarshal([]byte(out), &plan); err != nil {
		r.T.Fatalf("%s: %v", out, err)
	}
	return plan.Skipped
}
