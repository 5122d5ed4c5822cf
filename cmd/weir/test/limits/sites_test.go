package limits

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/referee"
	"weir/cmd/weir/weirtest/servers"
	"weir/cmd/weir/weirtest/store"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// sharesOf returns the configuration of one site: an account with an API of the site's name.
func sharesOf(site, shares string) string {
	return `
accounts:
  acme:
    limits:
      - {name: calls, rate: 40/s, burst: 4}
      - {name: three, quota: 60/3s, window: sliding}
      - {name: open, in_flight: 10}
    shares: ` + shares + `
apis:
  ` + site + `:
    url: %[1]s/` + site + `
    account: acme
    jitter: 20ms
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 100/s, capacity: 2000}
`
}

// wholeAcme are the limits of sharesOf, as the vendor has them. Two sites have two bursts, so the rate is a count.
func wholeAcme() []bucket.Limit {
	return []bucket.Limit{
		{Name: "calls", Quota: &bucket.Quota{Count: 40, Window: bucket.Sliding, Per: time.Second}},
		{Name: "three", Quota: &bucket.Quota{Count: 60, Window: bucket.Sliding, Per: 3 * time.Second}},
		{Name: "open", InFlight: 10},
	}
}

// twoSites starts a weir for each of two sites, which call one API. Each has a nats-server of its own.
func twoSites(t *testing.T) (eu, us *weirtest.Rig) {
	t.Helper()
	return twoSitesWith(t, func(*weirtest.Rig) {})
}

// twoSitesWith is twoSites, and prepares each rig before its start.
func twoSitesWith(t *testing.T, prepare func(*weirtest.Rig)) (eu, us *weirtest.Rig) {
	t.Helper()
	eu = weirtest.ReadyRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, "")
	us = &weirtest.Rig{T: t, API: eu.API, Dir: t.TempDir()}
	for site, r := range map[string]*weirtest.Rig{"eu": eu, "us": us} {
		r.Site, r.YAML = site, fmt.Sprintf(sharesOf(site, "{eu: 60%%, us: 40%%}"), eu.API.URL())
		prepare(r)
		r.Start()
		t.Cleanup(r.Stop)
	}
	return eu, us
}

// keepCalling gives a site jobs that last until the test ends.
func keepCalling(t *testing.T, r *weirtest.Rig, n int) {
	t.Helper()
	submitTo(t, r.NC, r.Site, n)
}

// shares runs weir shares, and returns the share in force by site.
func shares(t *testing.T, where string, args ...string) map[string]int64 {
	t.Helper()
	did := program.Command(t, []string{"WEIR_SITES=" + where}, append([]string{"shares", "acme"}, args...)...)
	if did.Code != 0 {
		t.Fatalf("weir shares %v ends with %d: %s%s", args, did.Code, did.Stdout, did.Stderr)
	}
	inForce := map[string]int64{}
	for line := range strings.Lines(did.Stdout) {
		if cells := strings.Fields(line); len(cells) > 2 && cells[0] == "acme" {
			var percent int64
			if _, err := fmt.Sscanf(cells[2], "%d%%", &percent); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			inForce[cells[1]] = percent
		}
	}
	return inForce
}

// wholeJitter is the jitter of sharesOf.
const wholeJitter = 20 * time.Millisecond

// holdWhole compares the slots of both sites together with the account's limits, and checks that each call that has
// arrived has a slot, and was sent in it. The API's stamps would say less: a busy machine sets them later than the
// calls.
func holdWhole(t *testing.T, eu, us *weirtest.Rig) {
	t.Helper()
	arrived := len(eu.API.All())
	eu.Eventually("a record of each call", func() bool {
		return eu.Store().Messages(ledger.CallsStream)+us.Store().Messages(ledger.CallsStream) >= arrived
	})
	var slots []bucket.Arrival
	for _, r := range []*weirtest.Rig{eu, us} {
		for _, c := range store.RecordsOf(t, r.JS) {
			slots = append(slots, bucket.Arrival{At: c.Planned.UnixNano(), End: c.Ended.UnixNano()})
			if late := c.Started.Sub(c.Planned); late < 0 || late > wholeJitter+r.Referee().Eps() {
				t.Errorf("a call of %s was sent %s after its slot; stamps are off by %s at most", c.API, late, r.Referee().Eps())
			}
		}
	}
	for _, l := range wholeAcme() {
		referee.CheckSlots(t, slots, l, wholeJitter)
	}
}

// sitesAt returns a value of WEIR_SITES.
func sitesAt(eu, us string) string { return "eu=" + eu + ",us=" + us }

// TestSharesOfTwoSites checks that two sites keep their shares while both have more jobs than they may call, that a move
// changes what each calls, and that no window exceeds the account's limits meanwhile. A restart keeps what was moved.
func TestSharesOfTwoSites(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*weirtest.Rig){
		"process": func(*weirtest.Rig) {},
		"redis":   func(r *weirtest.Rig) { r.Redis = weirtest.RedisSetting(t, "redis://"+servers.StartRedis(t).Addr) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eu, us := twoSitesWith(t, prepare)
			moveBetween(t, eu, us)
		})
	}
}

// moveBetween moves shares between two sites that call, there and back.
func moveBetween(t *testing.T, eu, us *weirtest.Rig) {
	t.Helper()
	where := sitesAt(eu.Worker.NATSURL(), us.Worker.NATSURL())
	keepCalling(t, eu, 600)
	keepCalling(t, us, 600)
	eu.AwaitCalls(60)
	if now := shares(t, where, "eu=30%", "us=70%"); now["eu"] != 30 || now["us"] != 70 {
		t.Errorf("in force: %v", now)
	}
	moved := len(eu.API.All())
	eu.AwaitCalls(moved + 120)
	since := eu.API.All()[moved:]
	if n, all := len(ofAPI(since, "eu")), len(since); n*100/all > 45 {
		t.Errorf("%d of %d calls since the move are of eu, whose share is 30%%", n, all)
	}
	if now := shares(t, where, "eu=60%", "us=40%"); now["eu"] != 60 || now["us"] != 40 {
		t.Errorf("in force: %v", now)
	}
	if now := shares(t, where, "eu=45%"); now["eu"] != 45 || now["us"] != 40 {
		t.Errorf("in force: %v", now)
	}
	eu.Stop()
	eu.Start()
	where = sitesAt(eu.Worker.NATSURL(), us.Worker.NATSURL())
	if now := shares(t, where); now["eu"] != 45 || now["us"] != 40 {
		t.Errorf("after a restart: %v", now)
	}
	eu.AwaitCalls(len(eu.API.All()) + 60)
	holdWhole(t, eu, us)
}

// moving is a `weir shares` that runs.
type moving struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	said  []string
}

// startMove starts weir shares.
func startMove(t *testing.T, where string, args ...string) *moving {
	t.Helper()
	cmd := exec.CommandContext(await.Context(t, "weir shares"), os.Args[0], append([]string{"shares", "acme"}, args...)...)
	cmd.Env = append(program.Environ(), "WEIR_TEST_AS_WEIR=1", "WEIR_SITES="+where)
	cmd.Dir = t.TempDir()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &moving{cmd: cmd, lines: bufio.NewScanner(stderr)}
}

// await waits until the command says text.
func (m *moving) await(t *testing.T, text string) {
	t.Helper()
	for m.lines.Scan() {
		m.said = append(m.said, m.lines.Text())
		if strings.Contains(m.lines.Text(), text) {
			return
		}
	}
	t.Fatalf("the move has ended without %q: %s", text, strings.Join(m.said, "\n"))
}

// kill kills the command.
func (m *moving) kill(t *testing.T) {
	t.Helper()
	if err := m.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_, _ = m.end(t)
}

// end waits for the end of the command, and returns its exit code and what it said.
func (m *moving) end(t *testing.T) (code int, said string) {
	t.Helper()
	for m.lines.Scan() {
		m.said = append(m.said, m.lines.Text())
	}
	return program.ExitCode(await.Result(t, "the end of weir shares", m.cmd.Wait)), strings.Join(m.said, "\n")
}

// TestMoveCutOff cuts the link to the site that would be raised, after the other site was lowered: nothing is raised. The
// same command goes on when the site can be reached again. A move that cannot reach a site from the start changes nothing.
func TestMoveCutOff(t *testing.T) {
	t.Parallel()
	eu, us := twoSites(t)
	keepCalling(t, eu, 600)
	keepCalling(t, us, 600)
	direct := sitesAt(eu.Worker.NATSURL(), us.Worker.NATSURL())
	link := servers.NewRelay(t, strings.TrimPrefix(us.Worker.NATSURL(), "nats://"))
	behind := sitesAt(eu.Worker.NATSURL(), "nats://"+link.Addr())
	eu.AwaitCalls(60)

	m := startMove(t, behind, "eu=20%", "us=80%")
	m.await(t, "site eu lowered")
	link.Cut()
	code, said := m.end(t)
	if code == 0 || !strings.Contains(said, "goes on") || strings.Contains(said, "raised") {
		t.Errorf("the move that was cut ends with %d: %s", code, said)
	}
	if now := shares(t, direct); now["eu"] != 20 || now["us"] != 40 {
		t.Errorf("after the cut: %v", now)
	}
	saysUnfinished(t, direct, us)
	did := program.Command(t, []string{"WEIR_SITES=" + behind}, "shares", "acme", "eu=50%", "us=50%")
	if did.Code != 5 || !strings.Contains(did.Stderr, "site us: ") {
		t.Errorf("without a link the move ends with %d: %s", did.Code, did.Stderr)
	}
	if now := shares(t, direct); now["eu"] != 20 || now["us"] != 40 {
		t.Errorf("after a move without a link: %v", now)
	}
	if now := shares(t, direct, "eu=20%", "us=80%"); now["eu"] != 20 || now["us"] != 80 {
		t.Errorf("gone on: %v", now)
	}
	if said := program.Command(t, []string{"WEIR_SITES=" + direct}, "shares", "acme"); said.Stderr != "" {
		t.Errorf("weir shares after the move says %s", said.Stderr)
	}
	eu.AwaitCalls(len(eu.API.All()) + 90)
	holdWhole(t, eu, us)
}

// saysUnfinished checks that commands say how the move to eu=20% us=80% goes on, which has lowered eu and not raised us.
func saysUnfinished(t *testing.T, where string, us *weirtest.Rig) {
	t.Helper()
	const goesOn = "weir shares acme eu=20% us=80%"
	said := program.Command(t, []string{"WEIR_SITES=" + where}, "shares", "acme")
	for _, want := range []string{goesOn, "60% together"} {
		if !strings.Contains(said.Stderr, want) {
			t.Errorf("weir shares does not say %q: %s%s", want, said.Stdout, said.Stderr)
		}
	}
	said = program.Command(t, []string{"WEIR_NATS_URL=" + us.Worker.NATSURL()}, "doctor")
	if !strings.Contains(said.Stdout, goesOn) {
		t.Errorf("weir doctor does not say %q: %s%s", goesOn, said.Stdout, said.Stderr)
	}
}

// TestMoversOvertake checks that of two moves at a time one is refused, and that the shares stay within the whole.
func TestMoversOvertake(t *testing.T) {
	t.Parallel()
	eu, us := twoSites(t)
	where := sitesAt(eu.Worker.NATSURL(), us.Worker.NATSURL())
	first := startMove(t, where, "eu=30%", "us=70%")
	first.await(t, "site eu lowered")
	now := shares(t, where, "eu=55%", "us=45%")
	code, said := first.end(t)
	if code == 0 || !strings.Contains(said, "another change came first") {
		t.Errorf("the first move ends with %d: %s", code, said)
	}
	if now["eu"] != 55 || now["us"] != 45 {
		t.Errorf("in force: %v", now)
	}
}

// TestShareOfRemovedAPI checks that a move waits for a site whose configuration names no API of the account any more: as
// long as it still counts by the former share, and after a restart, because its use is then unknown.
func TestShareOfRemovedAPI(t *testing.T) {
	t.Parallel()
	eu, us := twoSites(t)
	keepCalling(t, eu, 400)
	eu.AwaitCalls(10)
	without := strings.Replace(fmt.Sprintf(sharesOf("eu", "{eu: 60%%, us: 40%%}"), eu.API.URL()), "    account: acme\n", "", 1)
	without = strings.Replace(without, "  eu:\n    url", "  other:\n    url", 1)
	env := []string{"WEIR_NATS_URL=" + eu.Worker.NATSURL()}
	if did := program.Command(t, env, "config", "apply", "--yes", "-f", written(t, without)); did.Code != 0 {
		t.Fatalf("weir config apply: %s%s", did.Stdout, did.Stderr)
	}
	where := sitesAt(eu.Worker.NATSURL(), us.Worker.NATSURL())
	first := startMove(t, where, "eu=20%", "us=80%")
	first.await(t, "still counts by 60%")
	first.kill(t)
	eu.Stop()
	eu.YAML = without
	eu.Start()
	where = sitesAt(eu.Worker.NATSURL(), us.Worker.NATSURL())
	again := startMove(t, where, "eu=20%", "us=80%")
	again.await(t, "no weir there counts the account")
	again.kill(t)
	if now := shares(t, where); now["eu"] != 20 || now["us"] != 40 {
		t.Errorf("in force: %v", now)
	}
}

// TestSiteIsRefused checks what a start and a new configuration refuse: no site, another site, and a text that raises the
// share.
func TestSiteIsRefused(t *testing.T) {
	t.Parallel()
	eu, us := twoSites(t)
	where := sitesAt(eu.Worker.NATSURL(), us.Worker.NATSURL())
	shares(t, where, "eu=50%", "us=50%")
	other := strings.Replace(eu.YAML, "eu: 60%, us: 40%", "eu: 70%, us: 30%", 1)
	did := program.Command(t, []string{"WEIR_NATS_URL=" + eu.Worker.NATSURL()}, "config", "apply", "--yes", "-f", written(t, other))
	if did.Code == 0 || !strings.Contains(did.Stderr, "a file may lower a share, and never raises it") {
		t.Errorf("a text that raises is applied with %d: %s", did.Code, did.Stderr)
	}
	same := strings.Replace(eu.YAML, "eu: 60%, us: 40%", "eu: 50%, us: 50%", 1)
	did = program.Command(t, []string{"WEIR_NATS_URL=" + eu.Worker.NATSURL()}, "config", "apply", "--yes", "-f", written(t, same))
	if did.Code != 0 {
		t.Errorf("a text with what is in force: %d: %s", did.Code, did.Stderr)
	}
	did = program.Command(t, []string{"WEIR_NATS_URL=" + eu.Worker.NATSURL()}, "config", "rollback", "--yes")
	if did.Code != 0 {
		t.Errorf("a rollback: %d: %s", did.Code, did.Stderr)
	}
	if now := shares(t, where); now["eu"] != 50 {
		t.Errorf("after a rollback: %v", now)
	}
	did = program.Command(t, []string{"WEIR_NATS_URL=" + eu.Worker.NATSURL()}, "config", "show", "--explain", "--json")
	if !strings.Contains(did.Stdout, `{"path":"accounts.acme.shares.eu","value":"50%","moved":true}`) {
		t.Errorf("the explanation: %s", did.Stdout)
	}
	eu.Stop()
	for site, want := range map[string]string{"": "does not know its site", "us": `the store is of site "eu"`, "ap": `the store is of site "eu"`} {
		eu.Site = site
		refusedStart(t, eu, want)
	}
	eu.Site, eu.YAML = "eu", other
	refusedStart(t, eu, "never raises it")
	eu.YAML = same
	eu.Start()
}

// TestRestoredSiteIsPaused checks that a start with --restored pauses the APIs of an account with shares, and that the
// site calls again after a move and a resumption.
func TestRestoredSiteIsPaused(t *testing.T) {
	t.Parallel()
	eu, us := twoSites(t)
	keepCalling(t, eu, 200)
	eu.AwaitCalls(10)
	eu.Stop()
	s := eu.Settings()
	s.Restored = true
	w, err := worker.Start(await.Context(t, "a restored start"), s, weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		w.Stop()
		_ = await.Result(t, "the end of the worker", w.Wait)
	}()
	pausesFirst(t, w.NATSURL(), "eu")
	env := []string{"WEIR_NATS_URL=" + w.NATSURL()}
	if did := program.Command(t, env, "show", "eu", "k0"); !strings.Contains(did.Stdout, "may have an old share of account acme") {
		t.Errorf("weir show: %s%s", did.Stdout, did.Stderr)
	}
	where := sitesAt(w.NATSURL(), us.Worker.NATSURL())
	if now := shares(t, where, "eu=55%", "us=40%"); now["eu"] != 55 {
		t.Errorf("in force: %v", now)
	}
	called := len(eu.API.All())
	if did := program.Command(t, env, "resume", "eu"); did.Code != 0 {
		t.Errorf("weir resume: %s", did.Stderr)
	}
	eu.AwaitCalls(called + 10)
}

// pausesFirst checks that an API was paused before the order about a restored store was stored. A start that dies between
// the two must not lose the pause: no start after the order pauses anything.
func pausesFirst(t *testing.T, url, api string) {
	t.Helper()
	ctx := await.Context(t, "the entries of the control bucket")
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var revisions []uint64
	for _, key := range []string{admin.PauseEntry(api, ""), "restored"} {
		entry, err := stream.NewestEntry(ctx, nc, "weir_control", key)
		if err != nil || entry == nil {
			t.Fatalf("%s: %v, %v", key, entry, err)
		}
		revisions = append(revisions, entry.Seq)
	}
	if revisions[0] > revisions[1] {
		t.Errorf("the pause is write %d, and the order write %d", revisions[0], revisions[1])
	}
}

// refusedStart checks that a start fails with a message.
func refusedStart(t *testing.T, r *weirtest.Rig, want string) {
	t.Helper()
	w, err := worker.Start(await.Context(t, "a refused start"), r.Settings(), weirtest.TestLog(t))
	if err == nil {
		w.Stop()
		_ = await.Result(t, "the end of the worker", w.Wait)
	}
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("site %q: %v, want %q", r.Site, err, want)
	}
}

// written writes a configuration file.
func written(t *testing.T, yaml string) string {
	t.Helper()
	file := t.TempDir() + "/weir.yaml"
	weirtest.WriteFile(t, file, yaml)
	return file
}

// TestSharesAreShown checks the JSON of weir shares.
func TestSharesAreShown(t *testing.T) {
	t.Parallel()
	eu, us := twoSites(t)
	did := program.Command(t, []string{"WEIR_SITES=" + sitesAt(eu.Worker.NATSURL(), us.Worker.NATSURL())}, "shares", "acme", "--json")
	var all []string
	for decoder := json.NewDecoder(strings.NewReader(did.Stdout)); ; {
		var s struct {
			Site    string `json:"site"`
			InForce int64  `json:"in_force"`
			File    int64  `json:"file"`
		}
		if err := decoder.Decode(&s); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s %d %d", s.Site, s.InForce, s.File))
	}
	if !slices.Equal(all, []string{"eu 60 60", "us 40 40"}) {
		t.Errorf("%v: %s", all, did.Stderr)
	}
	did = program.Command(t, []string{"WEIR_NATS_URL=" + eu.Worker.NATSURL()}, "status")
	if !strings.Contains(did.Stdout, "(this site has 60%)") {
		t.Errorf("weir status: %s", did.Stdout)
	}
	us.Stop()
	did = program.Command(t, []string{"WEIR_NATS_URL=" + eu.Worker.NATSURL()}, "shares", "acme")
	if did.Code != 0 || !strings.Contains(did.Stdout, "WEIR_SITES does not say where site us is") {
		t.Errorf("one site alone: %d %s%s", did.Code, did.Stdout, did.Stderr)
	}
}

// TestSilentRedisDelaysNoApply checks that a configuration is applied while Redis answers nothing, also if an account has
// shares: only a move asks what Redis counts.
func TestSilentRedisDelaysNoApply(t *testing.T) {
	t.Parallel()
	redis := servers.StartRedis(t)
	eu, _ := twoSitesWith(t, func(r *weirtest.Rig) {
		if r.Site == "eu" {
			r.Redis = weirtest.RedisSetting(t, "redis://"+redis.Addr)
		}
	})
	redis.Signal(program.Freezes)
	defer redis.Signal(program.Thaws)
	other := strings.Replace(fmt.Sprintf(sharesOf("eu", "{eu: 60%%, us: 40%%}"), eu.API.URL()), "capacity: 2000", "capacity: 2001", 1)
	did := program.Command(t, []string{"WEIR_NATS_URL=" + eu.Worker.NATSURL()}, "config", "apply", "--yes", "-f", written(t, other))
	if did.Code != 0 || !strings.Contains(did.Stderr, "1 dispatching replica follows it") {
		t.Errorf("weir config apply ends with %d: %s%s", did.Code, did.Stdout, did.Stderr)
	}
}
