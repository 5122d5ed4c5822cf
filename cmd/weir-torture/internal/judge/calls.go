package judge

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir-torture/internal/plan"
)

// judgeCalls finds jobs that were called more than once. It ignores calls whose answer means "not processed".
func (e *Evidence) judgeCalls(r *Report) {
	r.Calls = len(e.Arrivals)
	for i := range e.Arrivals {
		if e.PushedBack(&e.Arrivals[i]) {
			r.PushedBack++
		}
	}
	done := slices.DeleteFunc(slices.Clone(e.calls()), func(a fakeapi.Arrival) bool { return e.PushedBack(&a) })
	receipts := map[string]*Receipt{}
	for i := range e.Receipts {
		receipts[e.Receipts[i].ID] = &e.Receipts[i]
	}
	repeated, _ := fakeapi.CalledTwice(done, JobOf)
	for _, again := range repeated {
		if why := e.again(again.Arrivals, receipts[again.ID]); why != "" {
			r.CalledAgain++
			r.example(why, e.story(&again))
			continue
		}
		r.Repeats += len(again.Arrivals) - 1
		first := keyOf(&again.Arrivals[0])
		if !e.mayBe(first, again.ID) || !e.mayCarry(&again.Arrivals[0], first) || slices.ContainsFunc(again.Arrivals, func(a fakeapi.Arrival) bool { return keyOf(&a) != first }) {
			r.CalledTwice++
			r.example("called twice", e.story(&again))
		}
		if again.Billed > 1 {
			r.BilledTwice++
		}
	}
}

// PushedBack reports whether an answer means "not processed" under any terms with which the call may have been made.
func (e *Evidence) PushedBack(a *fakeapi.Arrival) bool {
	switch a.Status {
	case http.StatusTooManyRequests:
		return true
	case http.StatusUnauthorized:
		return e.Options.Revocations > 0
	case http.StatusBadGateway:
		at := e.at(a)
		return slices.ContainsFunc(e.Timeline.Possible(at, at), func(t plan.Terms) bool { return t.Takes502 })
	}
	return false
}

// at returns when a call arrived.
func (e *Evidence) at(a *fakeapi.Arrival) time.Time { return e.Began.Add(time.Duration(a.At)) }

// callKey is the idempotency key of a call. For the api, the same value in another header, or quoted, is a different
// key.
type callKey struct{ header, value string }

// keyOf returns the key that a call carried. It is zero if the call carried none.
func keyOf(a *fakeapi.Arrival) callKey {
	for _, header := range []string{plan.UsualKeyHeader, plan.OtherKeyHeader} {
		if value := a.Header(header); value != "" {
			return callKey{header, value}
		}
	}
	return callKey{}
}

// mayBe reports whether a job's calls may be repeated under a key. Without packs it must be the job's own key. With
// packs it may be any key, because the api accepts only the same jobs again under a known key.
func (e *Evidence) mayBe(k callKey, job string) bool {
	if e.Options.Pack > 0 {
		return k.value != ""
	}
	return k.of(job)
}

// of reports whether a key is a job's own key.
func (k callKey) of(job string) bool { return strings.Trim(k.value, `"`) == job }

// story describes a job's calls in order.
func (e *Evidence) story(again *fakeapi.Repeated) string {
	words := []string{again.ID}
	for i := range again.Arrivals {
		a := &again.Arrivals[i]
		with := "without a key"
		if k := keyOf(a); k.value != "" {
			with = "with " + k.header + " " + k.value
		}
		words = append(words, e.at(a).Format("15:04:05.000")+" "+with)
	}
	return strings.Join(words, ", ")
}

// mayCarry reports whether a call may have been made under terms that send the key in k's header. The terms of a job's
// first call also hold for its later calls.
func (e *Evidence) mayCarry(a *fakeapi.Arrival, k callKey) bool {
	at := e.at(a)
	return slices.ContainsFunc(e.Timeline.Possible(at, at), func(t plan.Terms) bool { return t.Header == k.header })
}

// prices returns the lowest and the highest price of a call, in hundredths, under all terms that may have held for it.
func (e *Evidence) prices(a *fakeapi.Arrival) (least, most int) {
	at := e.at(a)
	for i, t := range e.Timeline.Possible(at, at) {
		if i == 0 {
			least = t.Price
		}
		least, most = min(least, t.Price), max(most, t.Price)
	}
	return least, most
}
