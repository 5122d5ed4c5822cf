package replicas

import (
	"fmt"
	"slices"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/servers"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest/await"
)

const operationAPI = `
apis:
  pay:
    url: %s/v1
    price: 0.40
    bucket: {rate: 50/s, capacity: 100, in_flight: 4}
    operation:
      poll: {path: "{answer-header:Location}", every: 1s, rate: 100/s}
      answers:
        - {status: 200, json: /state, values: [done], means: done}
        - {status: 200, means: running}
`

// TestReplicaKilledWhilePolling: the operations of a replica that is killed are polled by the others, and nothing is
// submitted again. So are those of a replica that gives its partitions up in order.
func TestReplicaKilledWhilePolling(t *testing.T) {
	t.Parallel()
	o := &fakeapi.Operations{}
	r := weirtest.NewReplicasOf(t, servers.OneServer(t), 3, fakeapi.Options{KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1}, Script: o.Script}, operationAPI)
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprintf("o%d", i))
		o.Hold(names[i])
		r.Publish(t.Context(), "weir.jobs.pay."+names[i], "job-"+names[i], []byte("job-"+names[i]))
	}
	polled := func(more map[string]int) func() bool {
		return func() bool {
			for _, name := range names {
				if o.Polled(name) <= more[name] {
					return false
				}
			}
			return true
		}
	}
	await.Until(t, "a poll of each", polled(nil))
	r.Procs[0].Kill()
	r.StopOne(1)
	before := map[string]int{}
	for _, name := range names {
		before[name] = o.Polled(name)
	}
	await.Until(t, "a poll of each by the replica that is left", polled(before))
	for _, name := range names {
		o.Finish(name)
	}
	r.AwaitEmpty()
	ends := r.Outcomes()
	for _, name := range names {
		if got := ends["job-"+name]; len(got) != 1 || got[0] != ledger.Done || o.Submitted(name) != 1 {
			t.Errorf("%s ended as %v, submitted %d times", name, got, o.Submitted(name))
		}
	}
}

// TestReplicasShareHeldSlots: the slot that an operation holds in Redis outlives the replica that made its call, and is
// free when the operation has ended, whichever replica has polled it. The second job waits for the slot: whether it was
// called is not known of a replica that was killed when it was ready. The third comes when no replica is killed any
// more.
func TestReplicasShareHeldSlots(t *testing.T) {
	t.Parallel()
	redis := servers.StartRedis(t)
	o := &fakeapi.Operations{}
	o.Hold("first")
	r := weirtest.NewReplicasOf(t, servers.OneServer(t), 2, fakeapi.Options{KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1}, Script: o.Script},
		operationAPI+"      hold_slot: true\n    limits: [{name: one, in_flight: 1}]\n", "WEIR_REDIS_URL=redis://"+redis.Addr)
	r.Publish(t.Context(), "weir.jobs.pay.first", "job-first", []byte("job-first"))
	await.Until(t, "a poll", func() bool { return o.Polled("first") > 0 })
	r.Publish(t.Context(), "weir.jobs.pay.second", "job-second", []byte("job-second"))
	for i := range r.Procs {
		r.Procs[i].Kill()
		polls := o.Polled("first")
		await.Until(t, "two polls by the replica that is left", func() bool { return o.Polled("first") > polls+1 })
		if n := o.Submitted("second"); n != 0 {
			t.Fatalf("the second job was called %d times beside an operation that holds the only slot", n)
		}
		r.StartOne(i)
	}
	r.Publish(t.Context(), "weir.jobs.pay.third", "job-third", []byte("job-third"))
	o.Finish("first")
	r.AwaitEmpty()
	ends := r.Outcomes()
	for _, name := range []string{"first", "second", "third"} {
		unknown := name == "second" && slices.Equal(ends["job-second"], []string{string(deadletter.Unknown)}) && o.Submitted(name) == 0
		if got := ends["job-"+name]; !unknown && (len(got) != 1 || got[0] != ledger.Done || o.Submitted(name) != 1) {
			t.Errorf("%s ended as %v, submitted %d times", name, got, o.Submitted(name))
		}
	}
}
