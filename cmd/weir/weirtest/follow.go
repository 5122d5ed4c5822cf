package weirtest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"

	"github.com/nats-io/nats.go"
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

func (r *Rig) SubmitMany(api, key string, n int) {
	r.T.Helper()
	jobs := make([]*nats.Msg, n)
	for i := range jobs {
		jobs[i] = JobFor(api, key, "")
	}
	FillTaken(r.T, r.NC, jobs)
}

func StampsOf(arrivals []fakeapi.Arrival, keep func(at int64) bool) []bucket.Arrival {
	var stamps []bucket.Arrival
	for _, a := range arrivals {
		if keep(a.At) {
			stamps = append(stamps, bucket.Arrival{At: a.At, End: a.End})
		}
	}
	return stamps
}

func (r *Rig) CheckStamps(what string, stamps []bucket.Arrival, l bucket.Limit) {
	r.T.Helper()
	r.Referee().Hold(what, stamps, l, 30*time.Millisecond)
}

func EverySecond(n int64) bucket.Limit {
	return bucket.Limit{Name: "rate", Rate: &bucket.Rate{Count: n, Per: time.Second, Burst: 1}}
}

// ConfigEvents returns the config events stored so far.
func (r *Rig) ConfigEvents() []admin.ConfigChange {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), Patience)
	defer cancel()
	stream, err := r.JS.Stream(ctx, "WEIR_EVENTS")
	if err != nil {
		r.T.Fatal(err)
	}
	var told []admin.ConfigChange
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		msg, err := stream.GetMsg(ctx, seq)
		if err != nil || !strings.HasPrefix(msg.Subject, "weir.events.config.") {
			continue
		}
		var event struct {
			Type, Source string
			Data         admin.ConfigChange
		}
		if err := json.Unmarshal(msg.Data, &event); err != nil || event.Type != "weir.config.v1" {
			r.T.Fatalf("%s: %v", msg.Data, err)
		}
		told = append(told, event.Data)
	}
	return told
}
