package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"

	"github.com/nats-io/nats.go"
)

// deniedJobs is how many jobs each api of TestDenial has, over denialKeys keys.
const (
	deniedJobs = 40
	denialKeys = 4
	denialMin  = 100 * time.Millisecond
)

// TestDenial lets apis answer every call with a status that speaks of weir's credentials, account or url, and then accept weir
// again: every job is done, none has used up an attempt, and after the calls that were under way one call at a time was made.
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
	r := rigOn(t, api, yaml)
	events, err := r.nc.SubscribeSync("weir.events.held.>")
	if err != nil {
		t.Fatal(err)
	}
	for i := range deniedJobs {
		for _, status := range statuses {
			name, key, id := fmt.Sprintf("on%d", status), fmt.Sprintf("key-%d", i%denialKeys), fmt.Sprintf("job-%02d", i)
			r.send(name, key, nats.Header{"Nats-Msg-Id": {id}, "Weir-Path": {"/" + key}}, id)
		}
	}
	told := map[string]string{}
	for len(told) < len(statuses) {
		msg, err := events.NextMsg(patience)
		if err != nil {
			t.Fatalf("waited for an event held of every api, have those of %d: %v", len(told), err)
		}
		told[strings.Split(msg.Subject, ".")[3]] = string(msg.Data)
	}
	r.eventually("several tries of every api", func() bool {
		for _, status := range statuses {
			if len(callsOf(api, status)) < 1+3 {
				return false
			}
		}
		return true
	})
	denying.Store(false)
	for _, status := range statuses {
		t.Run(fmt.Sprint(status), func(t *testing.T) { r.checkDenial(t, status, told[fmt.Sprintf("on%d", status)]) })
	}
}

// callsOf are the arrivals at the api of a status.
func callsOf(api *fakeapi.API, status int) []fakeapi.Arrival {
	prefix := fmt.Sprintf("/%d/", status)
	return slices.DeleteFunc(slices.Clone(api.All()), func(a fakeapi.Arrival) bool { return !strings.HasPrefix(a.Path, prefix) })
}

// checkDenial waits until every job of an api is done and holds what came of them to the promises.
func (r *rig) checkDenial(t *testing.T, status int, told string) {
	name := fmt.Sprintf("on%d", status)
	for _, word := range []string{strconv.Itoa(status), name, "weir resume " + name, "retry.reject"} {
		if !strings.Contains(told, word) {
			t.Errorf("the event does not say %q: %s", word, told)
		}
	}
	if strings.Contains(told, "secret") || strings.Contains(told, "pass@") || status < 400 && !strings.Contains(told, "https://moved.example") {
		t.Errorf("the event tells too much or too little of where the api points: %s", told)
	}
	for k := range denialKeys {
		key := fmt.Sprintf("key-%d", k)
		r.ended(name, key, deniedJobs/denialKeys)
		for _, letter := range r.letters(name, key) {
			t.Errorf("a job was given up though the api only refused weir: %v", letter.Header)
		}
		for _, result := range r.results(name, key) {
			if n := number(t, result.Header, "Weir-Attempts"); n != 1 {
				t.Errorf("job %s was done after %d attempts", result.Header.Get("Weir-Job-Id"), n)
			}
		}
	}
	var first []string // calls of the jobs that are called one after another
	for _, a := range callsOf(r.api, status) {
		if id := string(a.Body); a.Key == "key-0" && !slices.Contains(first, id) {
			first = append(first, id)
		}
	}
	if !slices.IsSorted(first) || len(first) != deniedJobs/denialKeys {
		t.Errorf("jobs of a key were called for the first time in the order %v", first)
	}
	var denied []fakeapi.Arrival
	for _, a := range callsOf(r.api, status) {
		if a.Status != http.StatusOK {
			denied = append(denied, a)
		}
	}
	const atOnce = 3*4 + 1 // three keys with four calls at once, and one with one
	took := time.Duration(denied[len(denied)-1].At - denied[0].At)
	if most := atOnce + 2 + int(took/(denialMin*3/4)); len(denied) > most {
		t.Errorf("%d calls were refused in %v: %d at once, then one at a time, make at most %d", len(denied), took, atOnce, most)
	}
	for _, c := range r.ledger(name, "key-0") {
		if c.Status == status && (c.Outcome != "denied" || c.Attempt != 0 || c.Billed != "no" || c.Final) {
			t.Errorf("the ledger says of a call that was refused: %+v", c)
		}
	}
}

// TestRejectNamesStatusesOfTheJob: what the operator lists under retry.reject ends its job as every other 4xx.
func TestRejectNamesStatusesOfTheJob(t *testing.T) {
	t.Parallel()
	api := startOrdered(t, map[string][]string{"forbidden": {"status=403;text=no such order"}, "moved": {"status=302;location=/x"}})
	r := rigOn(t, api, fmt.Sprintf(`
apis:
  pay:
    url: %s
    bucket: {rate: 1000/s, capacity: 50}
    retry: {min: 5ms, max: 20ms, reject: [403, 302]}
`, api.URL()))
	for key, status := range map[string]string{"forbidden": "403", "moved": "302"} {
		r.pay(key, "job-"+key)
		r.ended("pay", key, 1)
		letters := r.letters("pay", key)
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
			r := rigOn(t, api, fmt.Sprintf(`
apis:
  pay:
    url: %s
    bucket: {rate: 1000/s, capacity: 50, in_flight: 1}
    retry: {min: 5ms, max: 20ms, hold: %s}
`, api.URL(), holds))
			r.pay("first", "first")
			r.awaitCalls(1)
			r.eventually("the end of what is stored of the call", func() bool { return len(r.ledger("pay", "first")) == 1 })
			for i := range 8 {
				r.pay(fmt.Sprintf("key-%d", i), fmt.Sprintf("job-%d", i))
			}
			r.stop()
			r.start()
			r.awaitCalls(2)
			r.eventually("the record of the try", func() bool {
				n := len(r.ledger("pay", "first"))
				for i := range 8 {
					n += len(r.ledger("pay", fmt.Sprintf("key-%d", i)))
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
			r.ended("pay", "first", 1)
			for i := range 8 {
				r.ended("pay", fmt.Sprintf("key-%d", i), 1)
			}
			if results := len(r.stored("WEIR_RESULTS", "weir.results.pay.>")); results != 9 {
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
			writeFile(t, filepath.Join(dir, "old"), "old-token-0123456789")
			writeFile(t, filepath.Join(dir, "new"), "new-token-0123456789")
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
			r := &rig{t: t, api: api, dir: t.TempDir(), yaml: yaml("old"), secrets: []string{dir}}
			r.start()
			t.Cleanup(r.stop)
			events, err := r.nc.SubscribeSync("weir.events.held.pay._")
			if err != nil {
				t.Fatal(err)
			}
			for i := range 6 {
				r.pay(fmt.Sprintf("key-%d", i%3), fmt.Sprintf("job-%d", i))
			}
			msg, err := events.NextMsg(patience)
			if err != nil || !strings.Contains(string(msg.Data), "headers.Authorization") {
				t.Fatalf("no event that names the header to mend: %v", err)
			}
			denied := len(api.All())
			env := []string{"WEIR_NATS_URL=" + r.worker.NATSURL(), "WEIR_REPLICAS=1"}
			switch mends {
			case "config":
				file := filepath.Join(dir, "mended.yaml")
				writeFile(t, file, yaml("new"))
				if got := command(t, env, "config", "apply", "-f", file, "--yes"); got.code != 0 {
					t.Fatalf("%+v", got)
				}
			default:
				if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "old")); err != nil {
					t.Fatal(err)
				}
				if got := command(t, env, "resume", "pay"); got.code != 0 || !strings.Contains(got.stderr, "called once now by 1 replica") {
					t.Fatalf("%+v", got)
				}
			}
			for k := range 3 {
				r.ended("pay", fmt.Sprintf("key-%d", k), 2)
			}
			if n := len(api.All()); n != denied+6 || denied > 3 {
				t.Errorf("%d calls before it was mended, and %d in all for six jobs", denied, n)
			}
		})
	}
}
