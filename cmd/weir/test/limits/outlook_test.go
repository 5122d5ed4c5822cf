package limits

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/outlook"
	"weir/cmd/weir/weirtest"
	"weir/dispatcher/ledger"
)

const plannedYAML = `
apis:
  pay:
    url: %s
    bucket: {rate: 20/s, capacity: %d}
`

// TestPlanFromWhatWeirRecorded lets a bucket overflow. The plan then names its key and what would have been enough, and
// the check warns of it, until the configuration has that capacity.
func TestPlanFromWhatWeirRecorded(t *testing.T) {
	t.Parallel()
	api, err := fakeapi.Start(fakeapi.Options{Key: fakeapi.KeyFrom{Header: "X-Key"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	r := weirtest.RigOn(t, api, fmt.Sprintf(plannedYAML, api.URL(), 5))
	if _, code := r.CLI().Run("plan", "--api", "pay", "--since", "1h"); code != cli.ExitNotFound {
		t.Errorf("a plan from nothing ends with %d", code)
	}
	if out, code := r.CLI().Run("check", "--against", "1h"); code != 0 || !strings.Contains(out, "pay: no key overflows") {
		t.Errorf("a check against nothing ends with %d: %s", code, out)
	}
	codes := r.Producer().Flood("pay", "vip", 4, 10)
	r.Producer().Submit("weir.jobs.pay.quiet", nil, nil)
	over := codes[429]
	if over == 0 || codes[200]+over != 40 {
		t.Fatalf("40 jobs at once for a bucket of 5 are answered by %v", codes)
	}
	r.Eventually("an empty queue", func() bool {
		return r.Store().Waiting("pay") == 0 && r.Store().Messages("WEIR_CALLS") == codes[200]+1
	})

	plan := func(args ...string) (o outlook.Outlook) {
		t.Helper()
		out := r.CLI().Must(append([]string{"plan", "--since", "1h", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &o); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return o
	}
	o := plan("--api", "pay")
	a := o.APIs[0]
	t.Logf("%+v, suggested %+v, %+v", a, a.Suggested, o.Gaps)
	if a.Present.Jobs != 41 || a.Calls != codes[200]+1 || a.Overflowed != over || o.Waiting == nil || *o.Waiting != 0 {
		t.Errorf("the plan knows %d jobs, %d calls and %d letters, want 41, %d and %d", a.Present.Jobs, a.Calls, a.Overflowed, codes[200]+1, over)
	}
	if len(a.Overflowing) != 1 || a.Overflowing[0].Key != "vip" || a.Overflowing[0].Capacity != 5 || a.Overflowing[0].Needs <= 5 || a.Overflowing[0].Needs > 40 {
		t.Fatalf("the keys that overflow are %+v, want vip alone", a.Overflowing)
	}
	needs := a.Overflowing[0].Needs
	if a.Suggested == nil || a.Suggested.Capacity != int64(needs) || a.Suggested.Overflowed != 0 {
		t.Errorf("suggested is %+v, want a capacity of %d", a.Suggested, needs)
	}
	if o.Growth != nil || o.Breaks == nil || o.Breaks.Key != "vip" {
		t.Errorf("an hour grows by %+v, and the limits bear %+v", o.Growth, o.Breaks)
	}
	var tried struct {
		Overflowed int `json:"overflowed"`
	}
	out := r.CLI().Must("plan", "--since", "1h", "--capacity", fmt.Sprint(needs), "--json")
	if err := json.Unmarshal([]byte(out), &tried); err != nil || tried.Overflowed != 0 {
		t.Errorf("a plan with a capacity of %d says %s, %v", needs, out, err)
	}
	if text := r.CLI().Must("plan", "--since", "1h"); !strings.Contains(text, "NEEDS") || !strings.Contains(text, "limits bear: not even the recorded jobs: key vip of pay") {
		t.Errorf("a plan for people: %s", text)
	}
	if out, code := r.CLI().Run("check", "--against", "1h"); code != 1 || !strings.Contains(out, "pay: keys overflow next by the jobs of 1h: vip (") {
		t.Errorf("the check ends with %d: %s", code, out)
	}
	file := r.Dir + "/larger.yaml"
	weirtest.WriteFile(t, file, fmt.Sprintf(plannedYAML, api.URL(), needs))
	if out, code := r.CLI().Run("check", "--against", "1h", "-f", file); code != 0 {
		t.Errorf("the check of a file with a capacity of %d ends with %d: %s", needs, code, out)
	}
	if out, code := r.CLI().Run("check", "--against", "1h", "-f", r.Dir+"/missing.yaml"); code != 3 || !strings.Contains(out, "no problem") || !strings.Contains(out, "not known whether keys overflow next: ") {
		t.Errorf("the check of a file that is not there ends with %d, without the other checks: %s", code, out)
	}
	r.Stop()
	r.Start()
	r.Follow(fmt.Sprintf(plannedYAML, "%s", needs))
	if out, code := r.CLI().Run("check", "--against", "1h", "--format", "nagios"); code != 0 {
		t.Errorf("the check with a capacity of %d ends with %d: %s", needs, code, out)
	}
	r.CLI().Must("pause", "pay")
	for range 4 {
		r.Producer().Submit("weir.jobs.pay.quiet", nil, nil)
	}
	r.Eventually("4 waiting jobs of 45", func() bool {
		out, code := r.CLI().Run("check", "--against", "1h")
		return code == 3 && strings.Contains(out, "; 4 jobs wait: those that were never called are not in the plan")
	})
}

const grownYAML = `
accounts:
  acme: {limits: [{name: calls, quota: 100/day}]}
apis:
  chat: {url: "%[1]s", account: acme, bucket: {rate: 10/s, capacity: 100}}
  search: {url: "%[1]s", account: acme, bucket: {rate: 10/s, capacity: 100}}
`

// TestPlanFollowsTheGrowth plants records of the days before, of two apis of one account, and checks the growth and when
// it uses up the account's limit. The ledger lists calls by when they were stored, so that a plan may read them.
func TestPlanFollowsTheGrowth(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, grownYAML)
	midnight := time.Now().UTC().Truncate(24 * time.Hour)
	seq := uint64(100_000)
	for range 100 { // of an api that was removed
		seq++
		r.Store().Record(ledger.Record{API: "former", Key: "k", Job: fmt.Sprint("f", seq), Stream: "WEIR_former_0", Seq: seq, Call: 1, Accepted: midnight, Final: true})
	}
	for day := range 5 {
		for i := range 20 + 5*day {
			at := midnight.AddDate(0, 0, day-5).Add(time.Duration(i) * time.Minute)
			seq++
			r.Store().Record(ledger.Record{
				API: []string{"chat", "search"}[i%2], Key: "k", Job: fmt.Sprint("j", seq), Stream: "WEIR_chat_0", Seq: seq, Call: 1, Attempt: 1,
				Accepted: at, Planned: at, Started: at, Ended: at.Add(time.Second), Sent: true, Status: 200, Outcome: ledger.Done, Final: true,
				Price: "0.00", Billed: "yes", Limits: []string{"acme/calls"}, Costs: []int64{1},
			})
		}
	}
	var o outlook.Outlook
	since := midnight.AddDate(0, 0, -5).Format(time.RFC3339)
	if err := json.Unmarshal([]byte(r.CLI().Must("plan", "--account", "acme", "--since", since, "--json")), &o); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", o)
	if g := o.Growth; g == nil || g.Days != 5 || g.Unclear || g.More < 4.99 || g.More > 5.01 || len(o.APIs) != 2 {
		t.Errorf("the growth is %+v, want 5 more jobs each day through 5 days", g)
	}
	if len(o.Limits) != 1 || o.Limits[0].Limit != "acme/calls" || o.Limits[0].Used != "40" || o.Limits[0].Percent != 40 || o.Limits[0].InDays == nil || *o.Limits[0].InDays != 11 {
		t.Errorf("the limits are used by %+v, want acme/calls by 40 of 100, and used up in 11 days", o.Limits)
	}
	file := r.Dir + "/short.yaml"
	weirtest.WriteFile(t, file, fmt.Sprintf(grownYAML, r.API.URL())+"dead_letters: {max_age: 4d}\n")
	var kept outlook.Outlook
	if err := json.Unmarshal([]byte(r.CLI().Must("plan", "--account", "acme", "--since", since, "--json", "-f", file)), &kept); err != nil {
		t.Fatal(err)
	}
	if g := kept.Growth; g == nil || g.Days != 3 || len(kept.Days) != 5 || !strings.Contains(strings.Join(kept.Notes, "\n"), "letters are kept since ") {
		t.Errorf("with letters of 4 days the growth is %+v, want one of 3 whole days: %q", g, kept.Notes)
	}
	js := r.Operators()
	c := &connect.Connection{Conn: js.Conn(), JetStream: js, Denied: &connect.Denials{}}
	for most, whole := range map[int]bool{50: false, 160: true} {
		q := outlook.Question{Since: midnight.AddDate(0, 0, -5), Now: time.Now(), Most: outlook.Bounds{Records: most, Letters: 10, Keys: 10}}
		next, err := outlook.Next(t.Context(), c, q, 24*time.Hour)
		if err != nil || len(next) != 2 || next[0].Whole() != whole || next[0].ReadUntil.IsZero() != whole {
			t.Errorf("of at most %d records the next overflows are %+v, %v", most, next, err)
		}
	}
	for _, args := range [][]string{{"--account", "nobody"}, {"--api", "nobody"}} {
		if _, code := r.CLI().Run(append([]string{"plan", "--since", since}, args...)...); code != cli.ExitNotFound {
			t.Errorf("plan %v ends with %d", args, code)
		}
	}
	if _, code := r.CLI().Run("plan", "--since", since); code != cli.ExitUsage {
		t.Errorf("a plan of two apis ends with %d", code)
	}
}
