package weirtest

import (
	"strings"
)

// Shown reports whether `weir job` prints a text about a job.
func (r *Rig) Shown(job, what string) bool {
	out, code := r.Command("job", job)
	return code == 0 && strings.Contains(out, what)
}
