package webhook

import (
	"context"
	"errors"
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
	"weir/cmd/weir/internal/config/grammar"
	"weir/ingest/await"

	"github.com/prometheus/client_golang/prometheus"
)

// tripper answers posts in memory.
type tripper func(q *http.Request) *http.Response

// RoundTrip answers one post.
func (f tripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q), nil }

func answered(status int, header http.Header) *http.Response {
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(""))}
}

// parcelUntil is a parcel that is too old from end on.
type parcelUntil struct{ end time.Time }

func (p parcelUntil) render(context.Context, int) (message, error) {
	return message{id: "id", body: []byte("{}")}, nil
}
func (p parcelUntil) until() time.Time { return p.end }
func (p parcelUntil) size() int        { return 1 }
func (p parcelUntil) sequence() uint64 { return 1 }
func (p parcelUntil) named() []any     { return []any{"job_id", "j"} }

const callbackYAML = `
apis:
  pay:
    url: http://127.0.0.1:9/
    callback: {url: %q, secret: "${env:HOOK_SECRET}", rate: 1000/s}
    bucket: {rate: 1/s, capacity: 1}
`

// postsOf returns a sending of the api pay, whose receiver is answer, and its metrics.
func postsOf(t *testing.T, answer tripper) (*sending, *prometheus.Registry) {
	t.Helper()
	t.Setenv("HOOK_SECRET", "whsec_c3dvcmRmaXNoLXN3b3JkZmlzaC1zd29yZGZpc2g=")
	c, err := config.Parse(fmt.Appendf(nil, callbackYAML, "http://receiver.invalid/"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	s := New(Options{
		Configured: func() *config.Config { return c }, Version: func() uint64 { return 1 }, Log: slog.New(slog.DiscardHandler), Registerer: registry,
	})
	s.callbacks.Transport = answer
	return &sending{sender: s.callback("pay.done"), valid: func() bool { return true }}, registry
}

// total returns the sum of the metrics called name that have the given label value.
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

// TestTries checks that a post is tried again until it is too old, after waits that double, or as the receiver asks.
func TestTries(t *testing.T) {
	for name, c := range map[string]struct {
		answer  func(try int) *http.Response
		age     time.Duration
		took    time.Duration
		tries   int
		outcome string
	}{
		"it fails three times": {func(try int) *http.Response { return answered([]int{500, 302, 401, 204}[try], nil) }, 0, 7 * time.Second, 4, sent},
		"it asks for a time": {func(try int) *http.Response {
			return answered([]int{503, 200}[try], http.Header{"Retry-After": {"600"}})
		}, 0, 10 * time.Minute, 2, sent},
		"it fails for too long":       {func(int) *http.Response { return answered(500, nil) }, 10 * time.Second, 10 * time.Second, 4, dropped},
		"it fails for days":           {func(int) *http.Response { return answered(500, nil) }, 72 * time.Hour, 72 * time.Hour, 872, dropped},
		"it is refused for days":      {func(int) *http.Response { return answered(400, nil) }, 72 * time.Hour, 72 * time.Hour, 872, dropped},
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

// TestPace checks that first tries begin in the order of their loads and at the rate, and that a new rate holds at
// once.
func TestPace(t *testing.T) {
	t.Parallel()
	began := time.Now()
	rate := func(text string) *config.Receiver {
		r, err := grammar.ParseRate(text)
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

// TestRecovery checks that waiting posts are tried at once when a receiver accepts posts again after a long time. A
// single post that keeps failing is not tried more often because of that.
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
		stream.Sleep(t.Context(), 16*time.Minute) // virtual time; the next try is minutes away
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
		for range 10 { // one post keeps failing, and the others do not
			s.health.failed(time.Now(), "answered 500")
			s.health.accepted(time.Now())
		}
		if s.health.wakes() != woken {
			t.Error("each success has the post tried again that alone fails")
		}
	})
}

// TestRefusals checks that a refused post is given up only if it blocks others: a further one waits for its place, and
// the receiver accepts others. A receiver that refuses all posts loses none.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		most    int
		full    bool
		accepts bool // other posts, from the third try on
		outcome string
		tries   int
	}{
		"there is room":                     {mostUnderWay, false, true, dropped, 14},
		"the receiver refuses all of them":  {mostUnderWay, true, false, dropped, 14},
		"it holds up others":                {mostUnderWay, true, true, refused, refusedMax},
		"no other post may be under way":    {1, false, false, refused, refusedMax},
		"no other, and it has its own turn": {1, true, true, refused, refusedMax},
	} {
		var s *sending
		tries := 0
		s, registry := postsOf(t, func(*http.Request) *http.Response {
			if tries++; tries == 3 && c.accepts {
				s.health.accepted(time.Now())
			}
			return answered(422, nil)
		})
		s.most = c.most
		s.full.Store(c.full)
		synctest.Test(t, func(t *testing.T) {
			if err := s.deliver(t.Context(), parcelUntil{time.Now().Add(30 * time.Minute)}, time.Now()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		if n := total(t, registry, "weir_callback_ends_total", c.outcome); n != 1 || tries != c.tries {
			t.Errorf("%s: after %d tries %v are %s, want %d tries", name, tries, n, c.outcome, c.tries)
		}
	}
}

// unreadable is a parcel that cannot be read before its third try.
type unreadable struct{ parcelUntil }

func (u unreadable) render(ctx context.Context, try int) (message, error) {
	if try < 3 {
		return message{}, errors.New("the store does not answer")
	}
	return u.parcelUntil.render(ctx, try)
}

// TestUnreadable checks that a message that cannot be read is read again, and that this does not count as a failure of
// the receiver.
func TestUnreadable(t *testing.T) {
	var s *sending
	s, registry := postsOf(t, func(*http.Request) *http.Response {
		if since, why, _ := s.health.state(); !since.IsZero() {
			t.Errorf("the receiver fails since %s: %s", since, why)
		}
		return answered(200, nil)
	})
	synctest.Test(t, func(t *testing.T) {
		if err := s.deliver(t.Context(), unreadable{}, time.Now()); err != nil {
			t.Error(err)
		}
	})
	if n := total(t, registry, "weir_callback_ends_total", sent); n != 1 {
		t.Errorf("%v were sent", n)
	}
	if n := total(t, registry, "weir_callback_failures_total", "pay"); n != 0 {
		t.Errorf("%v failures of the receiver are counted", n)
	}
}

// slowlyRead is a parcel that calls meanwhile while it is read.
type slowlyRead struct {
	parcelUntil
	meanwhile func()
}

func (r slowlyRead) render(ctx context.Context, try int) (message, error) {
	r.meanwhile()
	return r.parcelUntil.render(ctx, try)
}

// TestLostLease checks that a sender that has lost its lease posts nothing more, even if it lost the lease while it
// read a message.
func TestLostLease(t *testing.T) {
	s, _ := postsOf(t, func(*http.Request) *http.Response { t.Error("it posted"); return answered(200, nil) })
	valid := false
	s.valid = func() bool { return valid }
	if err := s.deliver(t.Context(), parcelUntil{}, time.Now()); !errors.Is(err, errInDoubt) {
		t.Errorf("it goes on without the lease: %v", err)
	}
	valid = true
	if err := s.deliver(t.Context(), slowlyRead{meanwhile: func() { valid = false }}, time.Now()); !errors.Is(err, errInDoubt) {
		t.Errorf("it goes on after it has lost the lease: %v", err)
	}
}

// TestLeaseInDoubt checks that the feeds of callbacks pause while the lease cannot be renewed, and end with the lease.
func TestLeaseInDoubt(t *testing.T) {
	s, _ := postsOf(t, func(*http.Request) *http.Response { t.Error("it posted"); return answered(200, nil) })
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		const seconds, feeds = 60, 2
		var asked atomic.Int64
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.each(ctx, s.feeds, func(ctx context.Context, name string) {
				s.callback(name).sendOn(ctx, func() bool {
					if asked.Add(1) > 100*seconds {
						cancel() // a busy loop would never end in virtual time
					}
					return false
				})
			})
		}()
		stream.Sleep(ctx, seconds*time.Second)
		if n := asked.Load(); n < seconds || n > (seconds+1)*feeds {
			t.Errorf("within %d s two feeds looked %d times whether they may post", seconds, n)
		}
		cancel()
		await.Receive(t, "the end of the feeds", ended)
	})
}
