package admin

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"weir/dispatcher/desk"
)

// TestLimitOfListIsBounded checks that the answer to a question has at least one job and at most one more than a page,
// whatever number the question asks for.
func TestLimitOfListIsBounded(t *testing.T) {
	t.Parallel()
	const waiting = desk.MaxInspected + 10
	for limit, want := range map[int]int{-5: 2, 0: 2, 1: 2, 50: 51, math.MaxInt: desk.MaxInspected + 1, math.MinInt: 2} {
		q, err := readUnfinished(fmt.Appendf(nil, `{"waiting":true,"limit":%d}`, limit))
		if err != nil {
			t.Fatal(err)
		}
		var r unfinishedReply
		for i := range waiting {
			r.Jobs = append(r.Jobs, desk.UnfinishedJob{Seq: uint64(i), At: time.Unix(int64(i), 0)}) //nolint:gosec // small
		}
		r = r.newest(q.Limit + 1).fit(1 << 20)
		if wanted := q.wanted(); len(r.Jobs) != want || wanted.Limit != want || r.Jobs[0].Seq != waiting-1 {
			t.Errorf("a limit of %d: %d jobs, of each partition %d, want %d; the newest is %d", limit, len(r.Jobs), wanted.Limit, want, r.Jobs[0].Seq)
		}
	}
}

// TestListAwaitsOwners checks that a list is complete when the owners of all partitions have answered, and not before.
func TestListAwaitsOwners(t *testing.T) {
	t.Parallel()
	const none, half, rest = `{"apis":[]}`, `{"apis":[{"api":"pay","owned":1,"partitions":2}]}`, `{"apis":[{"api":"sms","owned":1,"partitions":1}]}`
	for what, c := range map[string]struct {
		api     string
		answers []string
		enough  bool
		silent  int
	}{
		"a replica does not know the api yet": {"pay", []string{none}, false, 0},
		"no api is configured":                {"", []string{none}, true, 0},
		"half of the partitions":              {"pay", []string{none, half}, false, 1},
		"all partitions":                      {"pay", []string{half, none, half}, true, 0},
		"another api is complete":             {"", []string{half, rest}, false, 1},
	} {
		g, enough := gathering{api: c.api, owned: map[string]int{}, partitions: map[string]int{}}, false
		for _, answer := range c.answers {
			enough = g.take([]byte(answer), nil)
		}
		if found := g.found(); enough != c.enough || len(found.Silent) != c.silent {
			t.Errorf("%s: enough is %t, silent %v", what, enough, found.Silent)
		}
	}
	if unfinishedTimeout >= unfinishedWaits.first || unfinishedTimeout >= unfinishedWaits.next {
		t.Error("an owner may take longer than the asking process waits")
	}
}

// TestCrashOverQuestion checks that a panic while answering a question that only reads becomes an error of that
// question.
func TestCrashOverQuestion(t *testing.T) {
	t.Parallel()
	o := operator{ServiceOptions: ServiceOptions{Log: slog.New(slog.DiscardHandler)}}
	reply, err := o.contained(func(context.Context) (any, error) { panic("no such place") })(t.Context())
	if reply != nil || err == nil || !strings.Contains(err.Error(), "no such place") {
		t.Errorf("%v, %v", reply, err)
	}
}
