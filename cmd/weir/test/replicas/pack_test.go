package replicas

import (
	"fmt"
	"slices"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest/await"
)

const packAPI = `
apis:
  pay:
    url: %%s/v1
    timeout: 1m
    bucket: {rate: 100/s, capacity: 500, in_flight: 4}
    headers: {X-Replica: "${env:WEIR_INSTANCE}"}
    pack: {jobs: 5, wait: 1m} # a slow machine has stored five jobs of each key by then
    %s
`

// packs are two replicas that have called packs of five jobs, one of each key. The api answers none of them yet.
type packs struct {
	*weirtest.Replicas
	api   fakeapi.Packs
	calls []fakeapi.Arrival
}

// packKeys and packJobs are how many keys there are, and how many jobs each has.
const packKeys, packJobs = 12, 5

func newPacks(t *testing.T, more string) *packs {
	t.Helper()
	p := &packs{}
	p.Replicas = weirtest.NewReplicasOf(t, servers.OneServer(t), 2,
		fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}, Script: p.api.Script}, fmt.Sprintf(packAPI, more))
	await.Until(t, "both to own some", func() bool { return shared(statusOf(t, p.Replicas), 2) })
	for n := range packKeys * packJobs {
		p.Publish(t.Context(), fmt.Sprintf("weir.jobs.pay.key-%d", n%packKeys), jobName(n), fmt.Appendf(nil, `{"n":%d}`, n))
	}
	await.Until(t, "a call of each pack", func() bool { return len(p.api.Calls()) == packKeys })
	p.calls = p.API.All()
	return p
}

func jobName(n int) string { return fmt.Sprint("job-", n) }

// of returns the calls of a replica that were made before the fault, as the api got them, and all calls after it.
func (p *packs) of(replica string) (before, after []fakeapi.PackCall) {
	all := p.api.Calls()
	for _, call := range all[:packKeys] {
		if slices.ContainsFunc(p.calls, func(a fakeapi.Arrival) bool { return a.Key == call.Key && a.Header("X-Replica") == replica }) {
			before = append(before, call)
		}
	}
	return before, all[packKeys:]
}

// judge checks how the jobs have ended, given that replica-0 was gone while its packs were called: if the api knows
// keys, each of these packs was called once more, as it was; otherwise their jobs are unknown. Nothing else was called
// again.
func (p *packs) judge(keyed bool) {
	p.T.Helper()
	p.AwaitEmpty()
	before, after := p.of("replica-0")
	if len(before) == 0 || len(before) == packKeys {
		p.T.Errorf("replica-0 had made %d of %d calls: that proves nothing", len(before), packKeys)
	}
	want := before
	if !keyed {
		want = nil
	}
	if len(after) != len(want) || slices.ContainsFunc(want, func(c fakeapi.PackCall) bool { return !slices.Contains(after, c) }) {
		p.T.Errorf("called again: %+v, want %+v", after, want)
	}
	unknown := 0
	for n, ends := range p.ends() {
		switch {
		case len(ends) == 1 && ends[0] == ledger.Done:
		case len(ends) == 1 && ends[0] == string(deadletter.Unknown) && !keyed:
			unknown++
		default:
			p.T.Errorf("%s ended as %v", jobName(n), ends)
		}
	}
	if !keyed && unknown != len(before)*packJobs {
		p.T.Errorf("%d jobs are unknown, of %d packs", unknown, len(before))
	}
}

// ends returns how each job has ended.
func (p *packs) ends() (of [packKeys * packJobs][]string) {
	p.T.Helper()
	all := p.Outcomes()
	for n := range of {
		of[n] = all[jobName(n)]
	}
	return of
}

// eachAPI runs a test for an api with idempotency keys and for one without.
func eachAPI(t *testing.T, test func(t *testing.T, p *packs, keyed bool)) {
	for name, more := range map[string]string{"keys": "idempotency: {header: Idempotency-Key}", "no keys": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPacks(t, more), more != "")
		})
	}
}

// TestReplicaKilledDuringPacks: one replica is killed while both call packs. The other takes its packs over.
func TestReplicaKilledDuringPacks(t *testing.T) {
	t.Parallel()
	eachAPI(t, func(_ *testing.T, p *packs, keyed bool) {
		p.Procs[0].Kill()
		p.api.Release()
		p.judge(keyed)
	})
}

// TestReplicaStoppedDuringPacks: one replica is stopped while both call packs. The other takes its packs over, and then
// the first goes on and gets the answers to its calls. No job ends twice.
func TestReplicaStoppedDuringPacks(t *testing.T) {
	t.Parallel()
	eachAPI(t, func(t *testing.T, p *packs, keyed bool) {
		p.Signal(0, program.Freezes)
		before, _ := p.of("replica-0")
		await.Until(t, "the other replica to have the packs", func() bool {
			if keyed {
				_, after := p.of("replica-0")
				return len(after) == len(before)
			}
			unknown := 0
			for _, ends := range p.ends() {
				if slices.Contains(ends, string(deadletter.Unknown)) {
					unknown++
				}
			}
			return unknown == len(before)*packJobs
		})
		p.api.Release()
		p.Signal(0, program.Thaws)
		p.judge(keyed)
	})
}
