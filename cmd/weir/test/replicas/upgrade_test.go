package replicas

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// TestOlderVersionTakesNothingAway: a weir that starts on streams of a version that needs more leaves them as they are.
func TestOlderVersionTakesNothingAway(t *testing.T) {
	t.Parallel()
	url := servers.OneServer(t)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, file, "apis:\n  ext:\n    url: http://127.0.0.1:1\n    bucket: {rate: 200/s, capacity: 100}\n")
	run := func(look func(r *weirtest.Rig)) {
		w, err := worker.Start(await.Context(t, "a worker to start"), program.ExternalSettings(t, url, file, "first"), weirtest.TestLog(t))
		if err != nil {
			t.Fatal(err)
		}
		r := weirtest.RigBeside(t, w, nil)
		look(r)
		r.Stop()
	}
	newer := map[string]jetstream.StreamConfig{}
	run(func(r *weirtest.Rig) {
		for _, s := range r.Store().Streams() {
			stream, err := r.Operators().UpdateStream(t.Context(), newerStream(s.Config))
			if err != nil {
				t.Fatal(err)
			}
			newer[s.Config.Name] = ownSettings(stream.CachedInfo().Config)
		}
	})
	run(func(r *weirtest.Rig) {
		for _, s := range r.Store().Streams() {
			if got, want := ownSettings(s.Config), newer[s.Config.Name]; !reflect.DeepEqual(got, want) {
				t.Errorf("%s is\n%+v, was\n%+v", s.Config.Name, got, want)
			}
		}
	})
	if len(newer) < 7 {
		t.Errorf("only %d streams were looked at", len(newer))
	}
}

// ownSettings are a stream's without what the server says of itself in some answers.
func ownSettings(c jetstream.StreamConfig) jetstream.StreamConfig {
	maps.DeleteFunc(c.Metadata, func(name, _ string) bool { return strings.HasPrefix(name, "_nats.") })
	return c
}

// newerStream is a stream as a version of weir could have it that needs more of everything that the configuration does not say.
func newerStream(c jetstream.StreamConfig) jetstream.StreamConfig {
	c.Metadata["weir.later"] = "1"
	c.Description += ", and more"
	if c.MaxMsgSize > 0 {
		c.MaxMsgSize *= 2
	}
	if c.MaxMsgsPerSubject > 0 {
		c.MaxMsgsPerSubject *= 2
	}
	switch {
	case strings.HasPrefix(c.Name, "KV_"):
		return c
	case c.Name == "WEIR_CALLS", c.Name == "WEIR_EVENTS":
		c.MaxAge *= 2
		c.MaxBytes += 1 << 20
	case c.Name == "WEIR_RESULTS":
		c.MaxBytes += 1 << 20
	}
	c.Subjects = append(c.Subjects, fmt.Sprintf("weir.later.%s", c.Name))
	return c
}
