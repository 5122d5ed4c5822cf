package soak

import (
	"flag"
	"fmt"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/web"

	"github.com/nats-io/nats.go"
)

// manyLetters is how many there are of letters and of keys: -letters 100000 tells how weir is with so many.
var manyLetters = flag.Int("letters", 10_000, "letters and keys of TestFirstPages, in ten thousands")

// TestFirstPages: with many letters and keys, each first page of the API, and each following page, takes less time than
// a plain read of the letters' headers in the same minute. The exception is the one request that reads all letters.
func TestFirstPages(t *testing.T) {
	t.Parallel()
	r := manyLettersAndKeys(t, *manyLetters)
	bare := web.LeastOf(3, func() { r.Store().ReadAll(*manyLetters) })
	t.Logf("a bare read of the letters' headers takes %s", bare)
	for _, page := range firstPages {
		took := r.HTTP().AskFor(page)
		t.Logf("%-36s %6.1f ms, %.3f of a bare read", page.Path, float64(took.Microseconds())/1000, took.Seconds()/bare.Seconds())
		if held := r.HeldUp.Worst(); (took - held).Seconds() > page.Part*bare.Seconds() {
			t.Errorf("%s took %s; a bare read of the letters takes %s, and this machine let programs wait for up to %s", page.Path, took, bare, held)
		}
	}
}

// firstPages are asked for in this order, each so many times, and may take a part of a bare read at most.
var firstPages = []web.FirstPage{
	{Path: "/api/v1/status", Tries: 1, Part: 5},
	{Path: "/api/v1/apis/pay/keys", Tries: 5, Part: 1},
	{Path: "/api/v1/apis/pay/keys?match=k777", Tries: 5, Part: 1},
	{Path: "/api/v1/apis/pay/keys/k777", Tries: 5, Part: 1},
	{Path: "/api/v1/dead", Tries: 5, Part: 1},
	{Path: "/api/v1/dead?limit=1000", Tries: 5, Part: 1},
	{Path: "/api/v1/dead?reason=overflow", Tries: 5, Part: 1},
	{Path: "/api/v1/dead?before=5000", Tries: 5, Part: 1},
	{Path: "/api/v1/dead/5000", Tries: 5, Part: 0.3},
	{Path: "/api/v1/history?api=pay", Tries: 5, Part: 0.5},
	{Path: "/", Tries: 5, Part: 0.3},
	{Path: "/letters", Tries: 5, Part: 0.3},
	{Path: "/console/app.js", Tries: 5, Part: 0.3},
	{Path: "/api/v1/dead/stats", Tries: 1, Part: 5}, // all are read once
	{Path: "/api/v1/dead/stats?api=pay", Tries: 5, Part: 0.3},
	{Path: "/api/v1/dead/stats", Tries: 5, Part: 0.3},
}

// manyLettersAndKeys is a weir with so many keys, of one job each, and as many letters, of 1,000 keys.
func manyLettersAndKeys(t *testing.T, many int) *weirtest.Rig {
	t.Helper()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  pay: {url: %s, bucket: {rate: 1/h, capacity: 1}, limits: [{name: account, rate: 50/s}]}
`)
	r.CLI().Run("pause", "pay")
	for _, keys := range []int{many, 1000} {
		for from := 0; from < many; from += 10_000 {
			var jobs []*nats.Msg
			for i := from; i < from+10_000; i++ {
				jobs = append(jobs, producer.JobFor("pay", fmt.Sprint("k", i%keys), fmt.Sprint("job-", i)))
			}
			producer.Fill(t, r.NC, jobs)
		}
	}
	if letters, keys := r.Store().Messages("WEIR_DEAD"), r.Store().Waiting("pay"); keys != many || letters != many {
		t.Fatalf("%d letters, %d keys", letters, keys)
	}
	return r
}
