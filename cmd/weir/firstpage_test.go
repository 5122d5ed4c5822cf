package main

import (
	"flag"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/deadletter"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// manyLetters is how many there are of letters and of keys: -letters 100000 tells how weir is with so many.
var manyLetters = flag.Int("letters", 10_000, "letters and keys of TestFirstPages, in ten thousands")

// TestFirstPages: of many letters and keys each first page of the API, and each that follows, takes less than a bare read of the letters'
// headers takes in the same minute, but for the one question that reads all letters.
func TestFirstPages(t *testing.T) {
	t.Parallel()
	r := manyLettersAndKeys(t, *manyLetters)
	bare := leastOf(3, func() { r.readAll(*manyLetters) })
	t.Logf("a bare read of the letters' headers takes %s", bare)
	for _, page := range firstPages {
		took := r.askFor(page)
		t.Logf("%-36s %6.1f ms, %.3f of a bare read", page.path, float64(took.Microseconds())/1000, took.Seconds()/bare.Seconds())
		if held := r.heldUp.Worst(); (took - held).Seconds() > page.part*bare.Seconds() {
			t.Errorf("%s took %s; a bare read of the letters takes %s, and this machine let programs wait for up to %s", page.path, took, bare, held)
		}
	}
}

// firstPages are asked for in this order, each so many times, and may take a part of a bare read at most.
var firstPages = []firstPage{
	{"/api/v1/status", 1, 5},
	{"/api/v1/apis/pay/keys", 5, 1},
	{"/api/v1/apis/pay/keys?match=k777", 5, 1},
	{"/api/v1/apis/pay/keys/k777", 5, 1},
	{"/api/v1/dead", 5, 1},
	{"/api/v1/dead?limit=1000", 5, 1},
	{"/api/v1/dead?reason=overflow", 5, 1},
	{"/api/v1/dead?before=5000", 5, 1},
	{"/api/v1/dead/5000", 5, 0.3},
	{"/api/v1/history?api=pay", 5, 0.5},
	{"/", 5, 0.3},
	{"/letters", 5, 0.3},
	{"/console/app.js", 5, 0.3},
	{"/api/v1/dead/stats", 1, 5}, // all are read once
	{"/api/v1/dead/stats?api=pay", 5, 0.3},
	{"/api/v1/dead/stats", 5, 0.3},
}

type firstPage struct {
	path  string
	tries int
	part  float64
}

// askFor is the least that a page takes.
func (r *rig) askFor(p firstPage) time.Duration {
	r.t.Helper()
	return leastOf(p.tries, func() {
		if status, body := r.say("GET", p.path, "", ""); status != http.StatusOK {
			r.t.Fatalf("%s: %d %s", p.path, status, body)
		}
	})
}

// manyLettersAndKeys is a weir with so many keys, of one job each, and as many letters, of 1,000 keys.
func manyLettersAndKeys(t *testing.T, many int) *rig {
	t.Helper()
	r := newRig(t, fakeapi.Options{}, `
apis:
  pay: {url: %s, bucket: {rate: 1/h, capacity: 1}, limits: [{name: account, rate: 50/s}]}
`)
	r.command("pause", "pay")
	for _, keys := range []int{many, 1000} {
		for from := 0; from < many; from += 10_000 {
			var jobs []*nats.Msg
			for i := from; i < from+10_000; i++ {
				jobs = append(jobs, jobFor("pay", fmt.Sprint("k", i%keys), fmt.Sprint("job-", i)))
			}
			fill(t, r.nc, jobs)
		}
	}
	if letters, keys := r.messages("WEIR_DEAD"), r.waiting("pay"); keys != many || letters != many {
		t.Fatalf("%d letters, %d keys", letters, keys)
	}
	return r
}

// leastOf is the least that something takes of so many times: what the machine did besides is not in it.
func leastOf(n int, what func()) time.Duration {
	var took []time.Duration
	for range n {
		began := time.Now()
		what()
		took = append(took, time.Since(began))
	}
	return slices.Min(took)
}

// readAll reads the headers of all letters as any client would.
func (r *rig) readAll(letters int) {
	t := r.t
	t.Helper()
	ctx := await.Context(t, "a bare read")
	c, err := r.operators().OrderedConsumer(ctx, deadletter.Stream, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	msgs, err := c.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer msgs.Stop()
	for range letters {
		if _, err := msgs.Next(jetstream.NextContext(ctx)); err != nil {
			t.Fatal(err)
		}
	}
}
