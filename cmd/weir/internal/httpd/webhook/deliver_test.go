package webhook

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/config"

	"github.com/prometheus/client_golang/prometheus"
)

// tripper answers posts in memory.
type tripper func(q *http.Request) *http.Response

// RoundTrip implements http.RoundTripper.
func (f tripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q), nil }

func answered(status int, header http.Header) *http.Response {
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(""))}
}

// parcelUntil is a parcel that is too old from a time on.
type parcelUntil struct{ end time.Time }

func (p parcelUntil) render(context.Context, int) (message, error) {
	return message{id: "id", body: []byte("{}")}, nil
}
func (p parcelUntil) until() time.Time { return p.end }
func (p parcelUntil) size() int        { return 1 }
func (p parcelUntil) named() []any     { return []any{"job_id", "j"} }

const callbackYAML = `
apis:
  pay:
    url: http://127.0.0.1:9/
    callback: {url: %q, secret: "${env:HOOK_SECRET}", rate: 1000/s}
    bucket: {rate: 1/s, capacity: 1}
`

// postsOf returns a sending of the api pay whose posts answer answers, with its metrics.
func postsOf(t *testing.T, answer tripper) (*sending, *prometheus.Registry) {
	t.Helper()
	t.Setenv("HOOK_SECRET", "whsec_c3dvcmRmaXNoLXN3b3JkZmlzaC1zd29yZGZpc2g=")
	c, err := config.Parse(fmt.Appendf(nil, callbackYAML, "http://receiver.invalid/"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	s := New(Options{Configured: func() *config.Config { return c }, Log: slog.New(slog.DiscardHandler), Registerer: registry})
	s.callbacks.Transport = answer
	return &sending{sender: s.callback("pay.done"), valid: func() bool { return true }}, registry
}

// total returns the sum of the metrics of a name that have a value among their labels.
func total(t *testing.T, registry *prometheus.Registry, name, label string) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, pair := range m.GetLabel() {
				if pair.GetValue() == label {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}

// TestTries: a post is tried again after waits that double, or as the receiver asks. It is given up after five
// refusals, or when it is too old.
func TestTries(t *testing.T) {
	for name, c := range map[string]struct {
		answer  func(try int) *http.Response
		age     time.Duration
		took    time.Duration
		tries   int
		outcome string
	}{
		"it fails three times": {func(try int) *http.Response { return answered([]int{500, 302, 401, 204}[try], nil) }, 0, 7 * time.Second, 4, sent},
		"it is refused":        {func(int) *http.Response { return answered(422, nil) }, 0, 15 * time.Second, 5, refused},
		"it asks for a time": {func(try int) *http.Response {
			return answered([]int{503, 200}[try], http.Header{"Retry-After": {"600"}})
		}, 0, 10 * time.Minute, 2, sent},
		"it fails for too long":       {func(int) *http.Response { return answered(500, nil) }, 10 * time.Second, 10 * time.Second, 4, dropped},
		"it fails for days":           {func(int) *http.Response { return answered(500, nil) }, 72 * time.Hour, 72 * time.Hour, 872, dropped},
		"it was too old at the start": {func(int) *http.Response { return answered(200, nil) }, -time.Second, 0, 0, dropped},
	} {
		tries := 0
		s, registry := postsOf(t, func(*http.Request) *http.Response { tries++; return c.answer(tries - 1) })
		synctest.Test(t, func(t *testing.T) {
			began, p := time.Now(), parcelUntil{}
			if c.age != 0 {
				p.end = began.Add(c.age)
			}
			if err := s.deliver(t.Context(), p, began); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(began).Round(time.Second); took != c.took || tries != c.tries {
				t.Errorf("%s: %d tries in %s, want %d in %s", name, tries, took, c.tries, c.took)
			}
		})
		if n := total(t, registry, "weir_callback_ends_total", c.outcome); n != 1 {
			t.Errorf("%s: %v are %s", name, n, c.outcome)
		}
	}
}

// TestPace: first tries begin in the order of their loads and at the rate, and a new rate holds at once.
func TestPace(t *testing.T) {
	t.Parallel()
	began := time.Now()
	rate := func(text string) *config.Receiver {
		r, err := config.ParseRate(text)
		if err != nil {
			t.Fatal(err)
		}
		return &config.Receiver{Rate: r}
	}
	var p pace
	for i := range 5 {
		if at := p.reserve(began, rate("10/s")).Sub(began); at != time.Duration(i)*100*time.Millisecond {
			t.Errorf("try %d is after %s", i, at)
		}
	}
	if at := p.reserve(began, rate("1/min")).Sub(began); at != 0 {
		t.Errorf("the first one of a new rate is after %s", at)
	}
	if at := p.reserve(began.Add(time.Second), rate("1/min")).Sub(began); at != time.Minute {
		t.Errorf("the second one of a new rate is after %s", at)
	}
	if at := p.reserve(began.Add(time.Hour), rate("1/min")).Sub(began); at != time.Hour {
		t.Errorf("after a pause it is after %s", at)
	}
}

// TestRecovery: when a receiver accepts a post again that had failed for long, the posts that wait are tried at once.
// One that alone fails is not tried more often for that.
func TestRecovery(t *testing.T) {
	var up atomic.Bool
	s, _ := postsOf(t, func(*http.Request) *http.Response {
		if !up.Load() {
			return answered(500, nil)
		}
		return answered(200, nil)
	})
	synctest.Test(t, func(t *testing.T) {
		began, ended := time.Now(), make(chan time.Duration, 1)
		go func() {
			if err := s.deliver(t.Context(), parcelUntil{}, began); err != nil {
				t.Error(err)
			}
			ended <- time.Since(began)
		}()
		stream.Sleep(t.Context(), 16*time.Minute) // of virtual time: the next try is minutes away
		if since, why, _ := s.health.state(); !since.Equal(began) || why != "answered 500" {
			t.Errorf("it fails since %s: %s", since, why)
		}
		up.Store(true)
		if err := s.deliver(t.Context(), parcelUntil{}, time.Now()); err != nil {
			t.Error(err)
		}
		back := time.Since(began)
		select {
		case at := <-ended:
			if late := at - back; late > 2*lookEvery {
				t.Errorf("it was tried again %s after the receiver was back", late)
			}
		case <-time.After(time.Hour):
			t.Error("it was not tried again")
		}
		if since, _, _ := s.health.state(); !since.IsZero() {
			t.Errorf("it fails since %s", since)
		}
		woken := s.health.wakes()
		for range 10 { // one post fails again and again, and the others do not
			s.health.failed(time.Now(), "answered 500")
			s.health.accepted(time.Now())
		}
		if s.health.wakes() != woken {
			t.Error("each success has the post tried again that alone fails")
		}
	})
}

// TestLostLease: a sender that has lost its lease posts nothing more.
func TestLostLease(t *testing.T) {
	s, _ := postsOf(t, func(*http.Request) *http.Response { t.Error("it posted"); return answered(200, nil) })
	s.valid = func() bool { return false }
	if err := s.deliver(t.Context(), parcelUntil{}, time.Now()); err == nil {
		t.Error("it goes on without the lease")
	}
}
