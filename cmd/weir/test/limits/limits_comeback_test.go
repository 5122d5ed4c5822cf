package limits

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/weirtest"
)

// lasting is a period that no test outlasts, whenever it begins.
var lasting = machine.Lasting(30 * 24 * time.Hour).String()

// comebacks are limits that allow so many calls in a lasting period.
var comebacks = map[string]func(calls int) string{
	"quota":   func(n int) string { return fmt.Sprintf("name: period, quota: %d/%s, window: fixed", n, lasting) },
	"sliding": func(n int) string { return fmt.Sprintf("name: period, quota: %d/30d, window: sliding", n) },
	"budget": func(n int) string {
		return fmt.Sprintf("name: period, budget: %d.%d0/%s, window: fixed, on_exhausted: hold", n/2, n%2*5, lasting)
	},
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
					r := weirtest.NewRig(t, fakeapi.Options{}, weirtest.ComebackYAML(first...))
					r.ComesBack(live, limit, func(n int) { r.Producer().SubmitMany("pay", "k", n) })
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
				r := weirtest.NewRedisRig(t, fakeapi.Options{}, weirtest.ComebackYAML(limit(10)))
				from := 0
				r.ComesBack(live, limit, func(n int) { r.SubmitMany(from, n); from += n })
			})
		}
	}
}
