package replicas

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestStartedTogether: replicas that meet a new cluster at the same moment make the same streams at the same moment, and all start.
func TestStartedTogether(t *testing.T) {
	t.Parallel()
	url, _ := servers.ThreeServers(t)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, file, "apis:\n  pay:\n    url: http://127.0.0.1:9\n    bucket: {rate: 1/s, capacity: 5}\n")
	var starts sync.WaitGroup
	failed := make([]error, 3)
	for i := range failed {
		starts.Go(func() {
			p, err := program.StartProcess(t, "WEIR_CONFIG="+file, "WEIR_NATS_URL="+url, "WEIR_HTTP_LISTEN=", "WEIR_REPLICAS=3", "WEIR_PARTITIONS=3",
				fmt.Sprintf("WEIR_INSTANCE=replica-%d", i))
			if failed[i] = err; err == nil {
				t.Cleanup(p.Kill)
			}
		})
	}
	await.Return(t, "all replicas to start", starts.Wait)
	if err := errors.Join(failed...); err != nil {
		t.Fatal(err)
	}
}

// TestRefusalsOnACluster: a partition with copies on three servers refuses what does not fit, knows a job again that would be
// refused now, and goes on taking others.
func TestRefusalsOnACluster(t *testing.T) {
	t.Parallel()
	url, _ := servers.ThreeServers(t)
	yaml := "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1/h, capacity: 3, in_flight: 1}\n    keys: {small: {capacity: 1}}\n"
	r := weirtest.NewReplicas(t, url, 1, yaml, "WEIR_REPLICAS=3", "WEIR_PARTITIONS=1")
	submit := func(key, id string) (a producer.Answer) {
		t.Helper()
		await.Until(t, "an answer to "+id, func() bool { // again while the cluster elects a leader
			reply, err := r.NC.RequestMsg(&nats.Msg{Subject: "weir.jobs.pay." + key, Header: nats.Header{"Nats-Msg-Id": {id}}}, 20*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			a = producer.Answer{}
			if err := json.Unmarshal(reply.Data, &a); err != nil {
				t.Fatal(err)
			}
			return a.Error == nil || a.Error.Code != 503
		})
		return a
	}
	for key, capacity := range map[string]int{"small": 1, "large": 3} {
		var last string
		for n := range capacity + 4 {
			id := fmt.Sprintf("%s-%d", key, n)
			switch a := submit(key, id); {
			case a.Error == nil:
				last = id
			case a.Error.Code != 429 || n < capacity:
				t.Errorf("%s: %+v", id, a.Error)
			}
		}
		if a := submit(key, last); a.Error != nil || !a.Duplicate {
			t.Errorf("%s, sent again: %+v, duplicate %v", last, a.Error, a.Duplicate)
		}
	}
	if a := submit("other", "other-1"); a.Error != nil {
		t.Errorf("after refusals: %+v", a.Error)
	}
}
