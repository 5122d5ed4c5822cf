package joblist

import (
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/ops/jobindex"
)

// TestPageEnds checks that a page ends before any place after which jobs may be missing, and that the next page begins
// there.
func TestPageEnds(t *testing.T) {
	t.Parallel()
	at := func(n int64) placed {
		return placed{Job{Job: string(rune('a' + n))}, jobindex.Place{At: n, Stream: "S"}}
	}
	for _, c := range []struct {
		what  string
		all   []placed
		limit int
		end   jobindex.Place
		jobs  string
		next  string
	}{
		{"all jobs fit", []placed{at(3), at(1)}, 2, jobindex.Place{}, "d b", ""},
		{"one more than fits", []placed{at(1), at(3), at(2)}, 2, jobindex.Place{}, "d c", "2.0.S"},
		{"jobs after the end may be missing", []placed{at(3), at(1), at(2)}, 5, jobindex.Place{At: 2, Stream: "S"}, "d c", "2.0.S"},
		{"the end is behind the page", []placed{at(3), at(1), at(2)}, 1, jobindex.Place{At: 2, Stream: "S"}, "d", "3.0.S"},
		{"an end without a job", nil, 5, jobindex.Place{At: 9}, "", "9.0."},
	} {
		p := Page{}.of(c.all, c.limit, c.end)
		var jobs []string
		for _, j := range p.Jobs {
			jobs = append(jobs, j.Job)
		}
		if got := strings.Join(jobs, " "); got != c.jobs || p.Next != c.next {
			t.Errorf("%s: the jobs %q and then %q, want %q and %q", c.what, got, p.Next, c.jobs, c.next)
		}
	}
}

// TestChoiceIsChecked checks that an impossible choice is refused, with the name of the field.
func TestChoiceIsChecked(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]Choice{
		`state "gone"`: {State: "gone", Limit: 1}, "limit is 1": {}, "limit is 1 to": {Limit: MostListed + 1},
		"after: ": {After: "x", Limit: 1}, "status ": {Status: "9xx", Limit: 1}, "since ": {Since: "soon", Limit: 1}, "id: ": {ID: strings.Repeat("x", 300), Limit: 1},
	} {
		if _, err := c.Read(time.Now()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	if q, err := (&Choice{Key: "k", Limit: 1}).Read(time.Now()); err != nil || q.Key != "k" || q.API != "" {
		t.Errorf("a key of every api: %+v, %v", q, err)
	}
	c := Choice{API: "pay", Key: "k", State: "dead", Status: "5xx", Since: "2h", ID: "17", After: "5.6.WEIR_pay_0", Limit: 10}
	q, err := c.Read(time.Now())
	if err != nil || q.After != (jobindex.Place{At: 5, Seq: 6, Stream: "WEIR_pay_0"}) || q.Status.From != 500 || q.Part != "17" {
		t.Errorf("%+v, %v", q, err)
	}
}
