package weirtest

import (
	"fmt"
	"path/filepath"
	"time"
)

// ApplyCommand runs `weir config apply` and waits until the worker uses the configuration. by is a time at which the
// worker certainly used it, in nanoseconds since the api's start. calls is the number of calls made by then, and before
// is the number of calls made before the command.
func (r *Rig) ApplyCommand(yaml string) (by int64, calls, before int) {
	r.T.Helper()
	file := filepath.Join(r.T.TempDir(), "new.yaml")
	WriteFile(r.T, file, fmt.Sprintf(yaml, r.API.URL()))
	version := r.Worker.ConfigState().Version
	before = len(r.API.All())
	r.Must("config", "apply", "-f", file, "--yes")
	r.Eventually("the configuration to be followed", func() bool { return r.Worker.ConfigState().Version > version })
	return int64(time.Since(r.API.Started())), len(r.API.All()), before
}
