package jobs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/web"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestEqualJobsShareAnOperation: a job waits while the operation of an equal one goes on, and gets its result; a later
// job gets it at once. While the first one's key is paused its operation is not polled, and no job waits for it.
func TestEqualJobsShareAnOperation(t *testing.T) {
	t.Parallel()
	o := &fakeapi.Operations{}
	r := operationRig(t, o, "1h", "hold_slot: false\n    reuse: {for: 1h, across_keys: true}")
	order := func(key, film string) {
		r.Producer().Send("pay", key, nats.Header{"Nats-Msg-Id": {key + "-" + film}, "Weir-Path": {"/pay/" + film}}, "the film")
	}
	wait := func(film string) {
		o.Hold(film)
		order("a", film)
		r.Eventually("a poll", func() bool { return o.Polled(film) > 0 })
		order("b", film)
		r.Eventually("a job that waits", func() bool {
			return strings.Contains(r.CLI().Must("show", "pay", "b"), "the answer to an equal job: job a-"+film+" of key a asks the same")
		})
	}
	wait("one")
	o.Finish("one")
	r.Store().Ended("pay", "b", 1)
	order("c", "one")
	r.Store().Ended("pay", "c", 1)
	for _, key := range []string{"b", "c"} {
		m := byJob(r.Store().Results("pay", key))[key+"-one"]
		if from(m) != "a-one" || string(m.Data) != `{"of":"one"}` || fmt.Sprint(recordsOf(r, key)) != "[reused]" {
			t.Errorf("key %s got the answer of %q: %s, with the records %v", key, from(m), m.Data, recordsOf(r, key))
		}
	}
	if n := o.Submitted("one"); n != 1 {
		t.Errorf("submitted %d times", n)
	}

	wait("two")
	r.CLI().Must("pause", "pay", "a")
	r.Eventually("a call of the job that waited", func() bool { return o.Submitted("two") == 2 })
	o.Finish("two")
	r.CLI().Must("resume", "pay", "a")
	r.Store().Ended("pay", "a", 2)
	r.Store().Ended("pay", "b", 2)
}

// TestReusedEndsArePosted: a job that gets another one's answer has an end like any other, which is posted once and
// says whose answer it is.
func TestReusedEndsArePosted(t *testing.T) {
	t.Parallel()
	hook := web.NewHookReceiver(t)
	yaml := strings.ReplaceAll(callbackYAML, "${env:CALLBACK_URL}", web.SecretFile(t, hook.URL+"/swordfish"))
	r := weirtest.ReadyRig(t, fakeapi.Options{}, yaml+"    reuse: {for: 1h}\n")
	r.Start()
	t.Cleanup(r.Stop)
	for _, id := range []string{"one", "two"} {
		r.Producer().Send("pay", "k", nats.Header{"Nats-Msg-Id": {id}}, "the question")
	}
	var ids []string
	await.Until(t, "both ends", func() bool {
		ids, _ = hook.Took(`"type":"job.done"`)
		return len(ids) >= 2
	})
	slices.Sort(ids)
	if _, n := hook.Took(`"reused":"one"`); n != 1 || len(slices.Compact(ids)) != 2 || len(r.API.All()) != 1 {
		t.Errorf("%d calls; posts under the ids %v, %d of them with another job's answer", len(r.API.All()), ids, n)
	}
}
