package replicas

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/referee"
	"weir/cmd/weir/weirtest/servers"
	"weir/dispatcher/ledger"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestReplicasTakeTurns: replicas with 120 jobs each share a rate that is used up. Their calls mix as their keys would on
// one machine: every key is called as often as any other while all of them wait.
func TestReplicasTakeTurns(t *testing.T) {
	for _, replicas := range []int{2, 3} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			t.Parallel()
			keys, each := 12*replicas, 10
			redis := servers.StartRedis(t)
			yaml := fmt.Sprintf(weirtest.ReplicaAPI, weirtest.NotIdempotent) + "    limits:\n      - {name: account, rate: 20/s}\n"
			r := weirtest.NewReplicas(t, servers.OneServer(t), replicas, yaml, "WEIR_REDIS_URL=redis://"+redis.Addr)
			var jobs []*nats.Msg
			for n := range each {
				for key := range keys {
					jobs = append(jobs, producer.JobFor("pay", fmt.Sprint("key-", key), fmt.Sprint(n)))
				}
			}
			r.FillPaused(jobs)
			r.AwaitEmpty()
			r.CheckArrivals(referee.SharedRate("account", 20, 1))

			run, uneven := longestRun(r.Records()), mostUneven(r.Records())
			t.Logf("calls by replica: %v; longest run of one replica while another waits: %d; keys differ by up to %d calls", r.CallsBy(), run, uneven)
			if run > 12 {
				t.Errorf("one replica made %d calls in a row while another waited", run)
			}
			if uneven > 4 {
				t.Errorf("while all keys waited, one was called %d times more often than another", uneven)
			}
		})
	}
}

// TestReplicasShareByPriority: one replica has all high jobs, and both have low ones. At a limit that they share in
// Redis the high jobs pass the low ones of the other replica too. Otherwise that replica would have every second turn. A
// replica on a busy machine may ask late for its next call, and a low job has that turn: turns are 200 ms apart, so that
// few are missed.
func TestReplicasShareByPriority(t *testing.T) {
	t.Parallel()
	redis := servers.StartRedis(t)
	yaml := fmt.Sprintf(weirtest.ReplicaAPI, weirtest.NotIdempotent) + "    limits:\n      - {name: account, rate: 5/s}\n"
	r := weirtest.NewReplicas(t, servers.OneServer(t), 2, yaml, "WEIR_REDIS_URL=redis://"+redis.Addr)
	await.Until(t, "both to own some", func() bool { return shared(statusOf(t, r), 2) })
	const lows, highs = 20, 20
	var jobs []*nats.Msg
	for n := range lows + highs {
		key, of := fmt.Sprint("bulk-", n%10), ingest.Low
		if n >= lows {
			key, of = "urgent", ingest.High
		}
		job := producer.JobFor("pay", key, fmt.Sprint(n))
		job.Header.Set(ingest.HeaderPriority, of.String())
		jobs = append(jobs, job)
	}
	r.FillPaused(jobs)
	r.AwaitEmpty()
	r.CheckArrivals(referee.SharedRate("account", 5, 1))
	calls, by := r.Records(), map[string]int{}
	for i := range calls[:highs] { // in which all wait: one or two are of low jobs, and a few more at the beginning
		by[calls[i].Key]++
	}
	t.Logf("of the first %d calls %d are of high jobs", highs, by["urgent"])
	if by["urgent"] < highs-6 {
		t.Errorf("of the first %d calls %d are of the %d high jobs: %v", highs, by["urgent"], highs, by)
	}
	if by := r.CallsBy(); len(by) != 2 {
		t.Errorf("calls by replica: %v", by)
	}
}

// TestTurnOfTheDead kills one of two replicas with SIGKILL right after a call of the other. Each has about half of the
// keys, so the next turn at the used-up limit is the dead one's. The other calls again within a second and an interval
// of the limit, and makes more calls long before it takes over what the dead replica owned. The api's own stamps tell.
func TestTurnOfTheDead(t *testing.T) {
	t.Parallel()
	const keys, interval = 24, time.Second / 4
	redis := servers.StartRedis(t)
	yaml := fmt.Sprintf(weirtest.ReplicaAPI, weirtest.NotIdempotent) + "    limits:\n      - {name: account, rate: 4/s}\n"
	called := make(chan string, 10_000) // the key of each call
	r := weirtest.NewReplicasOf(t, servers.OneServer(t), 2, fakeapi.Options{
		Key: fakeapi.KeyFrom{Segment: -1},
		Script: func(_ context.Context, request *fakeapi.Request) fakeapi.Behaviour {
			called <- request.Key
			return fakeapi.Behaviour{}
		},
	}, yaml, "WEIR_REDIS_URL=redis://"+redis.Addr)
	await.Until(t, "both to own some", func() bool { return shared(statusOf(t, r), 2) })
	var jobs []*nats.Msg
	for n := range keys * 60 {
		jobs = append(jobs, producer.JobFor("pay", fmt.Sprint("key-", n%keys), fmt.Sprint(n)))
	}
	r.FillPaused(jobs)
	for round := range 3 {
		if round > 0 {
			r.StartOne(0)
		}
		by := turnsOf(r, keys)
		for len(called) > 0 {
			await.Receive(t, "a call that was made before", called)
		}
		for key := ""; by[key] != "replica-1"; {
			key = await.Receive(t, "a call of the other replica", called)
		}
		r.Procs[0].Kill()
		last := fakeapi.ByTime(r.API.All())
		at := last[len(last)-1].At
		for len(called) > 0 {
			await.Receive(t, "a call that was made before", called)
		}
		for range 4 {
			await.Receive(t, "a call of the replica that is left", called)
		}
		var gaps []time.Duration
		own := 0 // calls of its own keys before the first of the dead replica's keys
		for _, a := range fakeapi.ByTime(slices.DeleteFunc(r.API.All(), func(a fakeapi.Arrival) bool { return a.At <= at })) {
			if by[a.Key] == "replica-1" && own == len(gaps) {
				own++
			}
			gaps = append(gaps, time.Duration(a.At-at).Round(time.Millisecond))
		}
		eps := r.Referee().Eps()
		t.Logf("round %d: calls %v after the death, the first %d of its own keys; stamps are off by %s at most",
			round, gaps, own, eps)
		if most := time.Second + interval; gaps[0] > most+eps {
			t.Errorf("round %d: the other's next call came %s after the death, and not within %s", round, gaps[0], most)
		}
		if own < 3 {
			t.Errorf("round %d: the other made %d calls before it took over keys of the dead replica", round, own)
		}
	}
	r.CheckArrivals(referee.SharedRate("account", 4, 1))
}

// turnsOf waits until both replicas have called in turns for a while, and returns which replica calls each key.
func turnsOf(r *weirtest.Replicas, keys int) (by map[string]string) {
	r.T.Helper()
	await.Until(r.T, "calls of both replicas in turns", func() bool {
		newest := r.Records()
		newest = newest[max(0, len(newest)-3*keys/2):]
		by = map[string]string{}
		calls := map[string]int{}
		for i := range newest {
			by[newest[i].Key] = newest[i].Instance
			calls[newest[i].Instance]++
		}
		return len(by) == keys && len(calls) == 2 && min(calls["replica-0"], calls["replica-1"]) > keys/4
	})
	return by
}

// longestRun returns how many calls in a row one replica made while another still had some to make.
func longestRun(calls []ledger.Record) (longest int) {
	left := map[string]int{}
	for i := range calls {
		left[calls[i].Instance]++
	}
	run, last := 0, ""
	for i := range calls {
		by := calls[i].Instance
		if by != last {
			run, last = 0, by
		}
		run++
		left[by]--
		others := 0
		for replica, n := range left {
			if replica != by {
				others += n
			}
		}
		if others > 0 {
			longest = max(longest, run)
		}
	}
	return longest
}

// mostUneven returns by how many calls one key was ahead of another at any time while all of them had some left.
func mostUneven(calls []ledger.Record) (most int) {
	left, made := map[string]int{}, map[string]int{}
	for i := range calls {
		left[calls[i].Key]++
	}
	for i := range calls {
		key := calls[i].Key
		made[key]++
		if left[key]--; left[key] == 0 {
			return most
		}
		for other := range left {
			most = max(most, made[key]-made[other])
		}
	}
	return most
}
