package main

import (
	"fmt"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
)

// comebackYAML is an api with the limits that are put in.
func comebackYAML(limits ...string) string {
	y := `
apis:
  pay:
    url: %s
    price: 0.50
    jitter: 300ms
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 200/s, capacity: 500, in_flight: 4}
`
	if len(limits) > 0 {
		y += "    limits:\n"
	}
	for _, l := range limits {
		y += "      - {" + l + "}\n"
	}
	return y
}

// comebacks are limits that allow so many calls in a period that no test outlasts.
var comebacks = map[string]func(calls int) string{
	"quota":   func(n int) string { return fmt.Sprintf("name: period, quota: %d/30d, window: fixed", n) },
	"sliding": func(n int) string { return fmt.Sprintf("name: period, quota: %d/30d, window: sliding", n) },
	"budget": func(n int) string {
		return fmt.Sprintf("name: period, budget: %d.%d0/30d, window: fixed, on_exhausted: hold", n/2, n%2*5)
	},
}

// change puts other limits in force: live, or by a start with another file.
func (r *rig) change(live bool, limits ...string) {
	r.t.Helper()
	if live {
		r.follow(comebackYAML(limits...))
		return
	}
	r.stop()
	r.yaml = fmt.Sprintf(comebackYAML(limits...), r.api.URL())
	r.start()
}

// comesBack takes a limit of ten calls out after six and puts it back after nine: of six more jobs it lets one pass. Raised by one
// it lets one more pass, so that any that were too many would have been seen.
func (r *rig) comesBack(live bool, limit func(int) string, submit func(n int)) {
	r.t.Helper()
	submit(6)
	r.awaitCalls(6)
	r.change(live)
	submit(3)
	r.awaitCalls(9)
	r.change(live, limit(10))
	submit(6)
	r.awaitCalls(10)
	r.change(live, limit(11))
	r.awaitCalls(11)
	r.change(live, limit(11), "name: other, rate: 100/s")
	if n := len(r.api.All()); n != 11 {
		r.t.Errorf("%d calls where the limit is 11", n)
	}
}

// TestLimitsComeBack: what is called while a quota or budget is not in the configuration counts when it is there again, and so does what
// was called before it came for the first time.
func TestLimitsComeBack(t *testing.T) {
	t.Parallel()
	for name, limit := range comebacks {
		for how, live := range map[string]bool{"live": true, "at a start": false} {
			for was, first := range map[string][]string{"back": {limit(10)}, "new": nil, "beside": {limit(10), "name: other, rate: 100/s"}} {
				t.Run(strings.Join([]string{name, was, how}, " "), func(t *testing.T) {
					t.Parallel()
					r := newRig(t, fakeapi.Options{}, comebackYAML(first...))
					r.comesBack(live, limit, func(n int) { r.submitMany("pay", "k", n) })
				})
			}
		}
	}
}

// TestLimitsComeBackInRedis is the same where Redis counts.
func TestLimitsComeBackInRedis(t *testing.T) {
	t.Parallel()
	for name, limit := range comebacks {
		for how, live := range map[string]bool{"live": true, "at a start": false} {
			t.Run(name+" "+how, func(t *testing.T) {
				r := newRedisRig(t, fakeapi.Options{}, comebackYAML(limit(10)))
				from := 0
				r.comesBack(live, limit, func(n int) { r.submitMany(from, n); from += n })
			})
		}
	}
}
