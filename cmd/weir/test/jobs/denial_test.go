package jobs

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/referee"

	"github.com/nats-io/nats.go"
)

// TestDenial: apis answer every call with a status about weir's credentials, account or url, and later accept weir
// again. Every job is done, none has used up an attempt, and after the calls that were under way weir made one call at
// a time.
func TestDenial(t *testing.T) {
	t.Parallel()
	statuses := []int{401, 402, 403, 407, 301, 302, 307, 308}
	var denying atomic.Bool
	denying.Store(true)
	api, err := fakeapi.Start(fakeapi.Options{
		Key: fakeapi.KeyFrom{Segment: -1}, KeepBody: 64,
		Script: func(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
			status, _ := strconv.Atoi(strings.Split(q.Path, "/")[1])
			if !denying.Load() {
				return fakeapi.Behaviour{}
			}
			b := fakeapi.Behaviour{Status: status}
			if status < 400 {
				b.Location = "https://user:pass@moved.example/v3/secret-path?token=secret-query"
			}
			return b
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	yaml := "apis:\n"
	for _, status := range statuses {
		yaml += fmt.Sprintf("  on%[1]d: {url: %[2]s/%[1]d, bucket: {rate: 500/s, capacity: 50}, keys: {key-0: {in_flight: 1}}, retry: {attempts: 2, min: 100ms, max: 200ms}}\n",
			status, api.URL())
	}
	r := weirtest.RigOn(t, api, yaml)
	events, err := r.NC.SubscribeSync("weir.events.held.>")
	if err != nil {
		t.Fatal(err)
	}
	for i := range weirtest.DeniedJobs {
		for _, status := range statuses {
			name, key, id := fmt.Sprintf("on%d", status), fmt.Sprintf("key-%d", i%weirtest.DenialKeys), fmt.Sprintf("job-%02d", i)
			r.Producer().Send(name, key, nats.Header{"Nats-Msg-Id": {id}, "Weir-Path": {"/" + key}}, id)
		}
	}
	told := map[string]string{}
	for len(told) < len(statuses) {
		msg, err := events.NextMsg(weirtest.Patience)
		if err != nil {
			t.Fatalf("waited for an event held of every api, have those of %d: %v", len(told), err)
		}
		told[strings.Split(msg.Subject, ".")[3]] = string(msg.Data)
	}
	r.Eventually("several tries of every api", func() bool {
		for _, status := range statuses {
			if len(referee.CallsOf(api, status)) < 1+3 {
				return false
			}
		}
		return true
	})
	denying.Store(false)
	for _, status := range statuses {
		t.Run(fmt.Sprint(status), func(t *testing.T) { r.CheckDenial(t, status, told[fmt.Sprintf("on%d", status)]) })
	}
}

// TestRejectNamesStatusesOfTheJob: what the operator lists under retry.reject ends its job as every other 4xx.
func TestRejectNamesStatusesOfTheJob(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, map[string][]string{"forbidden": {"status=403;text=no such order"}, "moved": {"status=302;location=/x"}})
	r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  pay:
    url: %s
    bucket: {rate: 1000/s, capacity: 50}
    retry: {min: 5ms, max: 20ms, reject: [403, 302]}
`, api.URL()))
	for key, status := range map[string]string{"forbidden": "403", "moved": "302"} {
		r.Producer().Pay(key, "job-"+key)
		r.Store().Ended("pay", key, 1)
		letters := r.Store().Letters("pay", key)
		if len(letters) != 1 || letters[0].Header.Get("Weir-Dead-Reason") != "rejected" || letters[0].Header.Get("Weir-Dead-Status") != status {
			t.Errorf("%s: %d letters, %d calls", key, len(letters), len(api.All()))
		}
	}
	if n := len(api.All()); n != 2 {
		t.Errorf("%d calls for two jobs that are rejected", n)
	}
}

// TestDenialOutlivesRestart: after a restart the api is held until the same time, and tried with one call.
func TestDenialOutlivesRestart(t *testing.T) {
	t.Parallel()
	for _, holds := range []string{"key", "api"} {
		t.Run(holds, func(t *testing.T) {
			t.Parallel()
			api, denying := startBroken(t, fakeapi.Options{}, "status=401;retry-after=3")
			r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  pay:
    url: %s
    bucket: {rate: 1000/s, capacity: 50, in_flight: 1}
    retry: {min: 5ms, max: 20ms, hold: %s}
`, api.URL(), holds))
			r.Producer().Pay("first", "first")
			r.AwaitCalls(1)
			r.Eventually("the end of what is stored of the call", func() bool {
				return len(r.Store().Ledger("pay", "first")) == 1
			})
			for i := range 8 {
				r.Producer().Pay(fmt.Sprintf("key-%d", i), fmt.Sprintf("job-%d", i))
			}
			r.Stop()
			r.Start()
			r.AwaitCalls(2)
			r.Eventually("the record of the try", func() bool {
				n := len(r.Store().Ledger("pay", "first"))
				for i := range 8 {
					n += len(r.Store().Ledger("pay", fmt.Sprintf("key-%d", i)))
				}
				return n >= 2
			})
			arrivals := api.All() // two, where this machine has not let three seconds more go by
			for i, a := range arrivals[1:] {
				if until := arrivals[i].End + int64(3*time.Second); a.At < until {
					t.Errorf("call %d to see whether the api accepts weir again came %v before the time it asked for", i+1, time.Duration(until-a.At))
				}
			}
			denying.Store(false)
			r.Store().Ended("pay", "first", 1)
			for i := range 8 {
				r.Store().Ended("pay", fmt.Sprintf("key-%d", i), 1)
			}
			if results := len(r.Store().Stored("WEIR_RESULTS", "weir.results.pay.>")); results != 9 {
				t.Errorf("%d results of nine jobs", results)
			}
		})
	}
}

// TestMendedIsTriedAtOnce: a mended configuration, or an operator's word, ends a wait that would be an hour.
func TestMendedIsTriedAtOnce(t *testing.T) {
	t.Parallel()
	for _, mends := range []string{"config", "resume"} {
		t.Run(mends, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			weirtest.WriteFile(t, filepath.Join(dir, "old"), "old-token-0123456789")
			weirtest.WriteFile(t, filepath.Join(dir, "new"), "new-token-0123456789")
			api, err := fakeapi.Start(fakeapi.Options{
				Key: fakeapi.KeyFrom{Segment: -1},
				Script: func(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
					if q.Header.Get("Authorization") != "Bearer new-token-0123456789" {
						return fakeapi.Behaviour{Status: http.StatusUnauthorized}
					}
					return fakeapi.Behaviour{}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = api.Close() })
			yaml := func(token string) string {
				return fmt.Sprintf(`
apis:
  pay:
    url: %s
    headers: {Authorization: "Bearer ${file:%s}"}
    bucket: {rate: 1000/s, capacity: 50, in_flight: 1}
    retry: {min: 1h, max: 2h}
`, api.URL(), filepath.Join(dir, token))
			}
			r := &weirtest.Rig{T: t, API: api, Dir: t.TempDir(), YAML: yaml("old"), Secrets: []string{dir}}
			r.Start()
			t.Cleanup(r.Stop)
			events, err := r.NC.SubscribeSync("weir.events.held.pay._")
			if err != nil {
				t.Fatal(err)
			}
			for i := range 6 {
				r.Producer().Pay(fmt.Sprintf("key-%d", i%3), fmt.Sprintf("job-%d", i))
			}
			msg, err := events.NextMsg(weirtest.Patience)
			if err != nil || !strings.Contains(string(msg.Data), "headers.Authorization") {
				t.Fatalf("no event that names the header to mend: %v", err)
			}
			denied := len(api.All())
			env := []string{"WEIR_NATS_URL=" + r.Worker.NATSURL(), "WEIR_REPLICAS=1"}
			switch mends {
			case "config":
				file := filepath.Join(dir, "mended.yaml")
				weirtest.WriteFile(t, file, yaml("new"))
				if got := program.Command(t, env, "config", "apply", "-f", file, "--yes"); got.Code != 0 {
					t.Fatalf("%+v", got)
				}
			default:
				if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "old")); err != nil {
					t.Fatal(err)
				}
				if got := program.Command(t, env, "resume", "pay"); got.Code != 0 || !strings.Contains(got.Stderr, "called once now by 1 replica") {
					t.Fatalf("%+v", got)
				}
			}
			for k := range 3 {
				r.Store().Ended("pay", fmt.Sprintf("key-%d", k), 2)
			}
			if n := len(api.All()); n != denied+6 || denied > 3 {
				t.Errorf("%d calls before it was mended, and %d in all for six jobs", denied, n)
			}
		})
	}
}
