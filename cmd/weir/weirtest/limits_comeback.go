package weirtest

import (
	"fmt"
)

// ComebackYAML returns the configuration of an api with the given limits.
func ComebackYAML(limits ...string) string {
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

// change applies other limits: live, or by a restart with another file.
func (r *Rig) change(live bool, limits ...string) {
	r.T.Helper()
	if live {
		r.Follow(ComebackYAML(limits...))
		return
	}
	r.Stop()
	r.YAML = fmt.Sprintf(ComebackYAML(limits...), r.API.URL())
	r.Start()
}

// ComesBack removes a limit of ten calls after six calls, and restores it after nine calls. The limit must let only one
// of six more jobs pass and, when it is raised by one, one more. So the test sees any call that is too many.
func (r *Rig) ComesBack(live bool, limit func(int) string, submit func(n int)) {
	r.T.Helper()
	submit(6)
	r.AwaitCalls(6)
	r.change(live)
	submit(3)
	r.AwaitCalls(9)
	r.change(live, limit(10))
	submit(6)
	r.AwaitCalls(10)
	r.change(live, limit(11))
	r.AwaitCalls(11)
	r.change(live, limit(11), "name: other, rate: 100/s")
	if n := len(r.API.All()); n != 11 {
		r.T.Errorf("%d calls where the limit is 11", n)
	}
}
