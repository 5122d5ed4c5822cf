package limits

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/referee"
	"weir/cmd/weir/weirtest/store"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go"
)

// accountOf returns a configuration of two apis of one account, with the lines of the account's limits, and more lines
// of each api.
func accountOf(limits string, chat, search string) string {
	api := func(name, lines string) string {
		return `
  ` + name + `:
    url: %[1]s/` + name + `
    account: acme
    price: 0.50
    jitter: 20ms
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 100/s, capacity: 500}
` + lines
	}
	return `
accounts:
  acme:
    limits:
` + limits + `
apis:` + api("chat", chat) + api("search", search)
}

const sharedLines = `      - {name: calls, rate: 40/s}
      - {name: three, quota: 90/3s, window: sliding}
      - {name: open, in_flight: 6}`

// sharedByBoth are the limits of sharedLines, as the api sees them.
func sharedByBoth() []bucket.Limit {
	return []bucket.Limit{
		referee.SharedRate("calls", 40, 1),
		{Name: "three", Quota: &bucket.Quota{Count: 90, Window: bucket.Sliding, Per: 3 * time.Second}},
		{Name: "open", InFlight: 6},
	}
}

// submitTo submits n jobs of some keys to an api, and expects a receipt for each.
func submitTo(t *testing.T, nc *nats.Conn, api string, n int) {
	t.Helper()
	jobs := make([]*nats.Msg, n)
	for i := range jobs {
		key := fmt.Sprint("k", i%4)
		jobs[i] = producer.JobFor(api, key, "")
		jobs[i].Header.Set("Nats-Msg-Id", fmt.Sprintf("%s-%d", api, i))
	}
	producer.FillTaken(t, nc, jobs)
}

// ofAPI returns the arrivals at one api's path.
func ofAPI(all []fakeapi.Arrival, api string) (of []fakeapi.Arrival) {
	for _, a := range all {
		if strings.HasPrefix(a.Path, "/"+api) {
			of = append(of, a)
		}
	}
	return of
}

// checkAccount compares all arrivals with the account's limits, and those of search with its own.
func checkAccount(r *weirtest.Rig) {
	r.T.Helper()
	all := r.API.All()
	for _, l := range sharedByBoth() {
		r.Referee().Hold("both apis", referee.Stamped(all), l, 20*time.Millisecond)
	}
	own := referee.SharedRate("own", 30, 1)
	r.Referee().Hold("search alone", referee.Stamped(ofAPI(all, "search")), own, 20*time.Millisecond)
}

const ownOfSearch = "    limits: [{name: own, rate: 30/s}]\n"

// accountRigs start a weir that counts an account in the process, or in Redis.
var accountRigs = map[string]func(*testing.T, fakeapi.Options, string) *weirtest.Rig{
	"process": weirtest.NewRig,
	"redis": func(t *testing.T, o fakeapi.Options, yaml string) *weirtest.Rig {
		t.Helper()
		return weirtest.NewRedisRig(t, o, yaml).Rig
	},
}

// TestAccountOfTwoAPIs: two apis on one account keep its limits together, by the account's own ledger, also over a stop
// in the middle. While both have jobs they take turns.
func TestAccountOfTwoAPIs(t *testing.T) {
	t.Parallel()
	const jobs = 90
	for where, rig := range accountRigs {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			r := rig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, accountOf(sharedLines, "", ownOfSearch))
			submitTo(t, r.NC, "chat", jobs)
			submitTo(t, r.NC, "search", jobs)
			r.AwaitCalls(2 * jobs / 3)
			r.Stop()
			stopped := time.Now()
			r.Start()
			r.Eventually("empty queues", func() bool {
				return r.Store().Waiting("chat")+r.Store().Waiting("search") == 0
			})
			checkAccount(r)
			if n := len(r.API.All()); n != 2*jobs {
				t.Errorf("%d calls for %d jobs", n, 2*jobs)
			}
			most := 4
			// An api loses turns if the machine holds it up for a slot.
			if slot := time.Second / 40; r.Referee().Eps() > 2*slot {
				most = jobs / 5
			}
			records := store.RecordsOf(t, r.JS)
			// One api is ready before the other after the start.
			for when, of := range map[string]func(c ledger.Record) (not bool){
				"before the stop": func(c ledger.Record) bool { return c.Planned.After(stopped) },
				"after it":        func(c ledger.Record) bool { return c.Planned.Before(stopped) },
			} {
				if n := apart(slices.DeleteFunc(slices.Clone(records), of)); n > most {
					t.Errorf("while both had jobs, %s, one api was %d calls ahead in some span, want %d at most", when, n, most)
				}
			}
		})
	}
}

// apart returns by how many calls one api was most ahead of the other, in the order of their slots, from the tenth call
// of each until one has its last but ten.
func apart(records []ledger.Record) int {
	slices.SortStableFunc(records, func(a, b ledger.Record) int { return a.Planned.Compare(b.Planned) })
	all, seen := map[string]int{}, map[string]int{}
	for i := range records {
		all[records[i].API]++
	}
	low, high, lead := 0, 0, 0
	for i := range records {
		api := records[i].API
		seen[api]++
		if slices.ContainsFunc([]string{"chat", "search"}, func(a string) bool { return seen[a] < 10 || all[a]-seen[a] < 10 }) {
			continue
		}
		if lead++; api == "search" {
			lead -= 2
		}
		low, high = min(low, lead), max(high, lead)
	}
	return high - low
}

// TestAccountOverAKill: what an account's quota had counted before a kill counts after it, whichever api it was.
func TestAccountOverAKill(t *testing.T) {
	t.Parallel()
	const count, jobs = 60, 50
	r := weirtest.NewKillRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}},
		accountOf(fmt.Sprintf("      - {name: calls, rate: 40/s}\n      - {name: hourly, quota: %d/h, window: sliding}", count), "", ""))
	submitTo(t, r.NC, "chat", jobs)
	submitTo(t, r.NC, "search", jobs)
	for range 2 {
		before := r.API.Totals().Ended
		ctx, cancel := context.WithTimeout(t.Context(), weirtest.Patience)
		err := r.API.Await(ctx, func(sum fakeapi.Totals) bool { return sum.Ended >= before+10 })
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		r.Proc.Kill()
		r.Start()
	}
	ctx, cancel := context.WithTimeout(t.Context(), weirtest.Patience)
	defer cancel()
	if err := r.API.Await(ctx, func(sum fakeapi.Totals) bool { return sum.Ended >= count-8 }); err != nil {
		t.Fatalf("after the kills the quota was not used: %v", err)
	}
	hourly := bucket.Limit{Name: "hourly", Quota: &bucket.Quota{Count: count, Window: bucket.Sliding, Per: time.Hour}}
	if v := bucket.Check(referee.Stamped(r.API.All()), bucket.Expectation{Limit: hourly}); v.Outcome == bucket.Fail {
		t.Error(v)
	}
}

// TestAccountIsShown: commands, the check of the ledger and a metric call an account's limits by its name and theirs,
// and count the calls of all its apis.
func TestAccountIsShown(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}},
		accountOf("      - {name: daily, quota: 1000/day}\n      - {name: spend, budget: 12.00/day, on_exhausted: dead_letter}", "", ""))
	submitTo(t, r.NC, "chat", 8)
	submitTo(t, r.NC, "search", 20)
	r.Eventually("empty queues", func() bool { return r.Store().Waiting("chat")+r.Store().Waiting("search") == 0 })
	if n := len(r.API.All()); n != 24 {
		t.Errorf("%d calls of 0.50 for a budget of 12.00", n)
	}
	r.Eventually("status to say what the account used", func() bool {
		said, _ := r.CLI().Run("status")
		return strings.Count(said, "acme/daily") == 1 && strings.Count(said, "24 of 1000 used") == 1
	})
	for _, args := range [][]string{{"spend"}, {"spend", "--api", "chat"}} {
		said, _ := r.CLI().Run(args...)
		if budget := regexp.MustCompile(`(?m)^acme/spend +12\.00 +0\.00 +12\.00 +12\.00 `); len(budget.FindAllString(said, -1)) != 1 || strings.Count(said, "acme/spend") != 1 {
			t.Errorf("weir %s does not tell once what both apis spent of the account's budget: %s", strings.Join(args, " "), said)
		}
	}
	found, code := r.CLI().Verify("--api", "chat")
	if l := program.LimitFound(t, found["chat"], "acme/daily"); code != 0 || l.Calls != 24 || l.Worst != 24 {
		t.Errorf("verify says of both apis' calls: exit code %d, %+v", code, l)
	}
	for _, api := range []string{"chat", "search"} {
		r.Eventually("the metric", func() bool {
			return strings.Contains(r.HTTP().Get("/metrics"), `weir_limit_used_ratio{api="`+api+`",limit="acme/daily"} 0.024`)
		})
	}
	events := map[string]int{}
	for _, api := range []string{"chat", "search"} {
		for range r.Store().Stored("WEIR_EVENTS", "weir.events.budget."+api+"._") {
			events["budget"]++
		}
	}
	if events["budget"] != 3 {
		t.Errorf("%d events of the one budget of both, want one for each of 50, 80 and 100 %%", events["budget"])
	}
}

// TestAccountJoined: an api that comes to an account while weir runs brings along what it was called for, and one that
// leaves is held by the account no longer.
func TestAccountJoined(t *testing.T) {
	t.Parallel()
	limits := "      - {name: hourly, quota: 30/h, window: sliding}"
	both := accountOf(limits, "", "")
	chatAlone := strings.Replace(both, "    account: acme\n", "", 1)
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, chatAlone)
	submitTo(t, r.NC, "chat", 12)
	submitTo(t, r.NC, "search", 5)
	r.Eventually("empty queues", func() bool { return r.Store().Waiting("chat")+r.Store().Waiting("search") == 0 })
	r.Follow(both)
	for _, api := range []string{"chat", "search"} {
		for i := range 20 {
			r.Producer().Submit("weir.jobs."+api+".k0", nil, map[string]string{"Weir-Path": "/k0", "Nats-Msg-Id": fmt.Sprint("more-", api, i)})
		}
	}
	r.AwaitCalls(30)
	r.Eventually("a quota that is used up", func() bool {
		said, _ := r.CLI().Run("status")
		return strings.Contains(said, "30 of 30 used")
	})
	if n := len(r.API.All()); n != 30 {
		t.Fatalf("%d calls within a quota of 30", n)
	}
	search := len(ofAPI(r.API.All(), "search"))
	r.Follow(chatAlone)
	r.Eventually("an empty queue of the api that left", func() bool { return r.Store().Waiting("chat") == 0 })
	if n := len(ofAPI(r.API.All(), "search")); n != search {
		t.Errorf("%d calls of the api that stayed, beside a quota that was used up after %d", n, search)
	}
}

// threeAPIs returns a configuration of three apis with the accounts that they have, "" for none.
func threeAPIs(chat, search, mail string) string {
	api := func(name, account string) string {
		if account != "" {
			account = "\n    account: " + account
		}
		return `
  ` + name + `:
    url: %[1]s/` + name + account + `
    jitter: 20ms
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 100/s, capacity: 500}`
	}
	return `
accounts:
  acme: {limits: [{name: hourly, quota: 30/h, window: sliding}, {name: open, in_flight: 6}]}
  beta: {limits: [{name: hourly, quota: 12/h, window: sliding}]}
apis:` + api("chat", chat) + api("search", search) + api("mail", mail)
}

// TestAccountsSwapAPIs: one api goes from an account to another while a second takes its place. The calls that the
// first made in its account still count there, and in the account that it comes to; those of the second count, too. An
// account that no api has for a while counts what was called meanwhile, also over a restart.
func TestAccountsSwapAPIs(t *testing.T) {
	t.Parallel()
	for where, rig := range accountRigs {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			r := rig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, threeAPIs("acme", "acme", ""))
			n := 0
			submit := func(api string, jobs int) {
				for range jobs {
					n++
					r.Producer().Submit("weir.jobs."+api+".k0", nil, map[string]string{"Weir-Path": "/k0", "Nats-Msg-Id": fmt.Sprint("job-", n)})
				}
			}
			used := func(account, said string) {
				r.Eventually(account+" used up", func() bool {
					status, _ := r.CLI().Run("status")
					return strings.Contains(status, said)
				})
			}
			empty := func() {
				r.Eventually("empty queues", func() bool {
					return r.Store().Waiting("chat")+r.Store().Waiting("search")+r.Store().Waiting("mail") == 0
				})
			}
			submit("chat", 8)
			submit("search", 7)
			submit("mail", 10)
			empty()
			r.Follow(threeAPIs("acme", "beta", "acme"))
			for _, api := range []string{"chat", "search", "mail"} {
				submit(api, 20)
			}
			used("acme", "30 of 30 used")
			used("beta", "12 of 12 used")
			all := r.API.All()
			if search := len(ofAPI(all, "search")); len(all) != 35 || search != 12 {
				t.Errorf("%d calls, %d of them of the api that moved; want 35 and 12", len(all), search)
			}

			r.Follow(threeAPIs("", "", ""))
			empty()
			calls := len(r.API.All())
			r.Stop()
			r.Start()
			submit("mail", 1)
			empty()
			r.Follow(threeAPIs("acme", "", "acme"))
			submit("mail", 3)
			r.Eventually("a quota that knows what was called without it", func() bool {
				status, _ := r.CLI().Run("status")
				return strings.Contains(status, "acme/hourly")
			})
			r.Stop()
			r.Start()
			used("acme", "of 30 used")
			if got := len(r.API.All()); got != calls+1 {
				t.Errorf("%d calls beside a quota that was used up, want %d", got, calls+1)
			}
		})
	}
}

// TestJobsOfARemovedAPIOfAnAccount: Redis refuses the api once the other api of its account follows. Its jobs wait from
// then on, and the log says so.
func TestJobsOfARemovedAPIOfAnAccount(t *testing.T) {
	t.Parallel()
	r := accountRigs["redis"](t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, accountOf("      - {name: calls, rate: 2/s}", "", ""))
	r.Said = &program.Book{}
	r.Stop()
	r.Start()
	submitTo(t, r.NC, "chat", 40) // most must still wait when the api is gone
	r.AwaitCalls(1)
	both := accountOf("      - {name: calls, rate: 20/s}", "", "")
	begin, end := strings.Index(both, "\n  chat:"), strings.Index(both, "\n  search:")
	r.Follow(both[:begin] + both[end:])
	r.Eventually("the log to say that the jobs wait", func() bool {
		return strings.Contains(r.Said.String(), "Redis refuses its calls once another api of its account follows")
	})
	if strings.Contains(r.Said.String(), "they are called until weir restarts") {
		t.Error("the log says that the jobs are called")
	}
	submitTo(t, r.NC, "search", 30)
	r.Eventually("the calls of search", func() bool { return len(ofAPI(r.API.All(), "search")) == 30 })
	if r.Store().Waiting("chat") == 0 {
		t.Error("Redis does not refuse the api that was removed")
	}
}

// TestRefusalIsShown: if Redis counts an account by a later configuration than this weir, status says that, and not
// that the limiter does not answer.
func TestRefusalIsShown(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRedisRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, accountOf(sharedLines, "", ""))
	submitTo(t, r.NC, "chat", 1)
	r.AwaitCalls(1)
	if err := r.Server.Client().HSet(t.Context(), "{weir:account/acme}:state", "gen", int64(1)<<53-1, "sign", "later").Err(); err != nil {
		t.Fatal(err)
	}
	submitTo(t, r.NC, "search", 1)
	said := ""
	r.Eventually("status to say why calls hold", func() bool {
		said, _ = r.CLI().Run("status")
		return strings.Contains(said, "api search: redis counts the limits by a newer configuration")
	})
	if strings.Contains(said, "does not answer") || !strings.Contains(said, "says why it refused the configuration") {
		t.Errorf("status says\n%s", said)
	}
	// Between two refusals the key may wait for its own rate.
	r.Eventually("keys to name the limiter", func() bool {
		keys, _ := r.CLI().Run("keys", "search")
		return strings.Contains(keys, "the limiter: redis counts")
	})
}

// TestAccountIsHeld: a 429 to one api holds the others too, if the configuration says that it means the account.
func TestAccountIsHeld(t *testing.T) {
	t.Parallel()
	refuse := func(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
		if q.Number == 1 {
			return fakeapi.Behaviour{Status: http.StatusTooManyRequests, RetryAfter: "2"}
		}
		return fakeapi.Behaviour{}
	}
	hold := "    retry: {hold: account}\n"
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}, Script: refuse}, accountOf(sharedLines, hold, hold))
	held, err := r.NC.SubscribeSync("weir.events.held.*._")
	if err != nil {
		t.Fatal(err)
	}
	submitTo(t, r.NC, "chat", 1)
	for range 2 {
		if _, err := held.NextMsg(weirtest.Patience); err != nil {
			t.Fatalf("both apis must be held: %v", err)
		}
	}
	submitTo(t, r.NC, "search", 3)
	r.AwaitCalls(5)
	all := r.API.All()
	slices.SortFunc(all, func(a, b fakeapi.Arrival) int { return cmp.Compare(a.At, b.At) })
	if wait := time.Duration(all[1].At - all[0].End); wait < 2*time.Second-r.Referee().Eps() {
		t.Errorf("the next call of the account came %s after an answer that asked for 2 s", wait)
	}
}

// TestNamesOfAccounts: the limits of an account stand behind an api's own, under the account's name.
func TestNamesOfAccounts(t *testing.T) {
	t.Parallel()
	c, err := config.Parse(fmt.Appendf(nil, accountOf(sharedLines, "", ownOfSearch), "http://127.0.0.1:1"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := c.API("search")
	if got, want := a.Rules.Names(), []string{"own", "acme/calls", "acme/three", "acme/open"}; !slices.Equal(got, want) {
		t.Errorf("the limits of search are %q, want %q", got, want)
	}
}

// TestShowSumsAccounts checks that weir show says of an account's rate and calls in flight what all of its apis use, as
// weir status does, at the command line and over HTTP.
func TestShowSumsAccounts(t *testing.T) {
	t.Parallel()
	var running atomic.Int32
	answers := make(chan struct{})
	r := weirtest.NewRig(t, fakeapi.Options{Script: func(ctx context.Context, _ *fakeapi.Request) fakeapi.Behaviour {
		running.Add(1)
		select {
		case <-answers:
		case <-ctx.Done():
		}
		return fakeapi.Behaviour{}
	}}, accountOf(`      - {name: calls, rate: 40/1h, burst: 40}
      - {name: open, in_flight: 6}`, "", ""))
	defer close(answers)
	for api, calls := range map[string]int{"chat": 2, "search": 1} {
		for i := range calls {
			r.Producer().Send(api, "k", nats.Header{"Nats-Msg-Id": {fmt.Sprint(api, i)}}, "{}")
		}
	}
	r.Eventually("three calls", func() bool { return running.Load() == 3 })
	for _, api := range []string{"chat", "search"} {
		var said, told admin.KeyShown
		if err := json.Unmarshal([]byte(r.CLI().Must("show", api, "k", "--json")), &said); err != nil {
			t.Fatal(err)
		}
		if status, answer := r.HTTP().Say("GET", "/api/v1/apis/"+api+"/keys/k", "", ""); json.Unmarshal([]byte(answer), &told) != nil {
			t.Fatalf("%d: %s", status, answer)
		}
		for where, shown := range map[string]admin.KeyShown{"weir show": said, "HTTP": told} {
			for _, name := range []string{"acme/calls", "acme/open"} {
				i := slices.IndexFunc(shown.Limits, func(l limitstate.LimitShown) bool { return l.Limit == name })
				if i < 0 || shown.Limits[i].Used != 3 {
					t.Errorf("%s of %s says %+v, want 3 used of %s", where, api, shown.Limits, name)
				}
			}
		}
	}
}
