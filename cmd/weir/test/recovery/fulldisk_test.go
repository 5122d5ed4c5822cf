package recovery

import (
	"fmt"
	"path/filepath"
	"testing"

	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestFullStoreDrains fills a small store with jobs that are paused. Producers get 503 before the room is used up that
// the jobs' ends need. When calls resume, every job ends, and jobs are accepted again.
func TestFullStoreDrains(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	weirtest.WriteFile(t, conf, fmt.Sprintf("jetstream {store_dir: %q}\naccounts {A {jetstream {max_file: 32M}, users: [{user: u, password: p}]}}\n", t.TempDir()))
	opts, err := server.ProcessConfigFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	url := "nats://u:p@" + servers.StartNATS(t, opts).Addr().String()
	api := weirtest.StartOrdered(t, nil)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, file, fmt.Sprintf("apis:\n  pay:\n    url: %s\n    max_body: 200KiB\n    bucket: {rate: 2000/s, capacity: 1000}\n", api.URL()))
	r := &weirtest.Rig{T: t, API: api}
	if r.Worker, err = worker.Start(await.Context(t, "a worker to start"), program.ExternalSettings(t, url, file, "small"), weirtest.TestLog(t)); err != nil {
		t.Fatal(err)
	}
	if r.NC, err = nats.Connect(url, nats.Timeout(await.Patience)); err != nil {
		t.Fatal(err)
	}
	if r.JS, err = jetstream.New(r.NC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	r.PutPause("")
	body, taken := make([]byte, 100<<10), 0
	// It takes no job and is unready at one moment. In the next it may have looked again, and have found room for another few.
	r.Eventually("a worker that takes no job to be unready", func() bool {
		a := r.Producer().Submit("weir.jobs.pay.k", body, map[string]string{"Nats-Msg-Id": fmt.Sprint("j", taken)})
		switch {
		case a.Error == nil:
			taken++
		case a.Error.Code != 503 || a.Letter != 0: // jobs that came just now may be counted twice until it looks again
			t.Fatalf("a full store answers %+v", a.Error)
		default:
			return r.Worker.Ready(t.Context()) != nil
		}
		return false
	})
	if taken < 100 || taken > 280 {
		t.Fatalf("%d jobs of 100 KiB were taken by a store of 32 MiB", taken)
	}
	if err := r.Control().Delete(t.Context(), admin.PauseEntry("pay", "")); err != nil {
		t.Fatal(err)
	}
	r.Eventually("every job to end", func() bool { return r.Store().Messages("WEIR_RESULTS") == taken })
	r.Eventually("room again", func() bool {
		return r.Producer().Submit("weir.jobs.pay.k", body, map[string]string{"Nats-Msg-Id": "again"}).Error == nil
	})
	if n := r.Store().Messages("WEIR_DEAD"); n != 0 {
		t.Errorf("%d letters", n)
	}
}
