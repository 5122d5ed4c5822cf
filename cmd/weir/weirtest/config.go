package weirtest

import (
	"fmt"
	"path/filepath"
	"time"

	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"

	"github.com/nats-io/nats.go/jetstream"
)

// ApplyConfig stores a configuration as `weir config apply` does, and returns its version. %s in yaml is replaced with
// the api's url.
func (r *Rig) ApplyConfig(yaml string) uint64 {
	r.T.Helper()
	store := r.ConfigStore()
	current, last, err := store.Newest(r.T.Context())
	if err != nil {
		r.T.Fatal(err)
	}
	next := admin.StoredConfig{YAML: fmt.Sprintf(yaml, r.API.URL()), From: "test", Who: "test", At: time.Now()}
	current.Follow(&next)
	version, err := store.Put(r.T.Context(), next, last)
	if err != nil {
		r.T.Fatal(err)
	}
	return version
}

func (r *Rig) ConfigStore() admin.ConfigStore {
	r.T.Helper()
	store, err := admin.FindConfigStore(r.T.Context(), r.Operators())
	if err != nil {
		r.T.Fatal(err)
	}
	return store
}

// Versions returns the key-value bucket with the versions of the configuration.
func (r *Rig) Versions() jetstream.KeyValue {
	r.T.Helper()
	kv, err := r.Operators().KeyValue(r.T.Context(), connect.ConfigBucket)
	if err != nil {
		r.T.Fatal(err)
	}
	return kv
}

// Follow applies a configuration and waits until the worker uses it. It returns two times in nanoseconds since the
// api's start: from is a time before the change, and by is a time at which the worker certainly used the configuration.
func (r *Rig) Follow(yaml string) (from, by int64) {
	r.T.Helper()
	from = int64(time.Since(r.API.Started()))
	version := r.ApplyConfig(yaml)
	r.Eventually("the configuration to be followed", func() bool { return r.Worker.ConfigState().Version >= version })
	return from, int64(time.Since(r.API.Started()))
}

// ApplyCommand runs `weir config apply` and waits until the worker uses the configuration. by is a time at which the
// worker certainly used it, in nanoseconds since the api's start. calls is the number of calls made by then, and before
// is the number of calls made before the command.
func (r *Rig) ApplyCommand(yaml string) (by int64, calls, before int) {
	r.T.Helper()
	file := filepath.Join(r.T.TempDir(), "new.yaml")
	WriteFile(r.T, file, fmt.Sprintf(yaml, r.API.URL()))
	version := r.Worker.ConfigState().Version
	before = len(r.API.All())
	r.CLI().Must("config", "apply", "-f", file, "--yes")
	r.Eventually("the configuration to be followed", func() bool { return r.Worker.ConfigState().Version > version })
	return int64(time.Since(r.API.Started())), len(r.API.All()), before
}

// ComebackYAML returns the configuration of an api with the given limits.
func ComebackYAML(limits ...string) string {
	y := `
apis:
  pay:
    url: %s
    price: 0.50
    jitter: 300ms
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 200/s, capacity: 500, in_flight: 4}
`
	if len(limits) > 0 {
		y += "    limits:\n"
	}
	for _, l := range limits {
		y += "      - {" + l + "}\n"
	}
	return y
}

// change applies other limits: live, or by a restart with another file.
func (r *Rig) change(live bool, limits ...string) {
	r.T.Helper()
	if live {
		r.Follow(ComebackYAML(limits...))
		return
	}
	r.Stop()
	r.YAML = fmt.Sprintf(ComebackYAML(limits...), r.API.URL())
	r.Start()
}

// ComesBack removes a limit of ten calls after six calls, and restores it after nine calls. The limit must let only one
// of six more jobs pass and, when it is raised by one, one more. So the test sees any call that is too many.
func (r *Rig) ComesBack(live bool, limit func(int) string, submit func(n int)) {
	r.T.Helper()
	submit(6)
	r.AwaitCalls(6)
	r.change(live)
	submit(3)
	r.AwaitCalls(9)
	r.change(live, limit(10))
	submit(6)
	r.AwaitCalls(10)
	r.change(live, limit(11))
	r.AwaitCalls(11)
	r.change(live, limit(11), "name: other, rate: 100/s")
	if n := len(r.API.All()); n != 11 {
		r.T.Errorf("%d calls where the limit is 11", n)
	}
}
