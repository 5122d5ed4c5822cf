package console

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
)

// scripts is a browser at a console in which modules of its scripts are tried by themselves.
func scripts(t *testing.T) *browser {
	t.Helper()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  pay: {url: %s, bucket: {rate: 4/s, capacity: 6}}
`)
	b := newBrowser(t, r.Worker.HTTPAddr())
	b.open("/")
	return b
}

// snapshotsOf are the snapshots of a bucket, and of an api, of which each tells second, depth, jobs that came to the bucket, and those that
// came to the api; then the replica that counted.
const snapshotsOf = `
  const { Past, pace, slots } = await import("/console/past.js");
  const snapshot = ([second, depth, arrived, accepted, replica]) => ({
    at: new Date(second * 1000).toISOString(),
    status: { replicas: [{ instance: replica, started: "then" }], apis: [{ api: "pay", jobs: depth, accepted, called: 0, throttled: 0 }] },
    buckets: depth === null ? [] : [{ api: "pay", key: "a", depth, arrived }],
  });
  const highest = (line, now) => Math.max(0, ...slots(line, now * 1000).map((s) => s?.came ?? 0));`

// TestConsoleMakesUpNoArrivals: a page draws only what came to a bucket and left it while the page was open. It draws
// nothing for an earlier backlog, for what weir recorded before, or for a replica that came or went.
func TestConsoleMakesUpNoArrivals(t *testing.T) {
	t.Parallel()
	b := scripts(t)
	type told struct{ Came, Left, Most, API, MostOfAPI float64 }
	for name, c := range map[string]struct {
		kept, snapshots string
		want            told
	}{
		"a page that is opened while a backlog drains": {
			kept:      `{ at: 96000, level: 130, came: 0, left: 5, refused: 0 }, { at: 101000, level: 125, came: 0, left: 5, refused: 0 }`,
			snapshots: `[104, 122, 130, 130, "x"], [105, 121, 130, 130, "x"], [106, 120, 130, 130, "x"]`,
			want:      told{Left: 1},
		},
		"jobs come": {
			snapshots: `[104, 10, 10, 10, "x"], [105, 12, 13, 13, "x"], [106, 14, 16, 16, "x"]`,
			want:      told{Came: 3, Left: 1, Most: 3, API: 3, MostOfAPI: 3},
		},
		"a bucket that was empty begins anew": {
			snapshots: `[104, 1, 10, 10, "x"], [105, 0, 10, 10, "x"], [106, 2, 2, 12, "x"]`,
			want:      told{Came: 1, Left: 0.5, Most: 1, API: 1, MostOfAPI: 1},
		},
		"a replica goes and comes": {
			snapshots: `[102, 10, 10, 900, "x y"], [103, 10, 10, 300, "x"], [104, 10, 10, 300, "x"], [105, 10, 10, 900, "x z"], [106, 10, 10, 901, "x z"]`,
			want:      told{API: 1, MostOfAPI: 0.5},
		},
	} {
		got := eval[told](b, fmt.Sprintf(`(async () => {%s
  const past = new Past();
  past.before("pay", "a", [%s]);
  for (const s of [%s]) past.take(snapshot(s));
  const a = pace(past.of("pay", "a")), api = pace(past.of("pay"));
  return { Came: a.came, Left: a.left, Most: highest(past.of("pay", "a"), 106), API: api.came, MostOfAPI: highest(past.of("pay"), 106) };
})()`, snapshotsOf, c.kept, c.snapshots))
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: it tells %+v, want %+v", name, got, c.want)
		}
	}
}

// TestConsoleKnowsOfNoContact: after three seconds without a word weir counts as out of reach; while it says that it is there the figures are
// old after five seconds without new ones; and a tab that was hidden is not told so.
func TestConsoleKnowsOfNoContact(t *testing.T) {
	t.Parallel()
	b := scripts(t)
	got := eval[[]string](b, `(async () => {
  const { Stream } = await import("/console/stream.js");
  const turns = [], real = { now: Date.now, setInterval, EventSource };
  let now = 0, look;
  Date.now = () => now;
  window.setInterval = (f) => { look = f; return 0; };
  window.EventSource = class extends EventTarget { close() {} };
  const stream = new Stream({ tell() {}, refused() {}, turn: (state) => turns.push(state + " " + now) });
  window.setInterval = real.setInterval;
  const word = (kind) => stream.source.dispatchEvent(new MessageEvent(kind, { data: '{"at":"2026-01-02T15:04:05Z"}' }));
  const until = (then, said) => { for (; now < then; now += 250) { if (said && now % 1000 === 0) word(said); look(); } };
  until(10000, "snapshot");
  until(20000);
  until(21000, "snapshot");
  until(30000, "here");
  until(31000, "snapshot");
  stream.rest();
  until(50000);
  stream.open();
  until(52000);
  until(53000, "snapshot");
  until(60000);
  stream.close();
  Object.assign(window, { EventSource: real.EventSource });
  Date.now = real.now;
  return turns;
})()`)
	want := "live 0, lost 12250, live 20000, late 25250, live 30000, late 31000, live 52000, lost 55250, late 60000"
	if said := strings.Join(got, ", "); said != want {
		t.Errorf("it turns\n%s, want\n%s", said, want)
	}
}

// TestConsoleTellsWhereTimeWent: a job's bar has its waits by cause and its calls, and nothing twice or beside them: its parts add up to
// the time from its acceptance to its end, or to now.
func TestConsoleTellsWhereTimeWent(t *testing.T) {
	t.Parallel()
	b := scripts(t)
	at := func(second int) string { return fmt.Sprintf(`at: "2026-01-02T15:00:%02dZ"`, second) }
	call := func(second, ended int, more string) string {
		return fmt.Sprintf(`{ what: "call", %s, ended: "2026-01-02T15:00:%02dZ" %s }`, at(second), ended, more)
	}
	accepted := `{ what: "accepted", ` + at(0) + ` }`
	for want, job := range map[string]string{
		"rate 4000, called 1000": `{ state: "done", timeline: [` + accepted + `, ` + call(4, 5, "") + `] }`,
		"rate 1000, limit 3000, called 1000, hold 5000, called 2000": `{ state: "done", timeline: [` + accepted + `, ` +
			call(4, 5, `, held_for: "limit", held_limit: "spend", held_ms: 3000`) + `, { what: "event", ` + at(6) + ` }, ` +
			call(10, 12, `, held_for: "retry", held_ms: 5000`) + `, { what: "result", ` + at(12) + ` }] }`,
		"hold 30000":                           `{ state: "queued", queue: { waits: { for: "paused" } }, timeline: [` + accepted + `] }`,
		"rate 30000":                           `{ state: "queued", queue: { waits: { for: "rate" } }, timeline: [` + accepted + `] }`,
		"rate 20000, called 10000":             `{ state: "queued", queue: { state: { phase: "calling" } }, timeline: [` + accepted + `, ` + call(20, 20, "") + `] }`,
		"rate 1000, called 1000, called 28000": `{ state: "queued", queue: { state: { phase: "polling" } }, timeline: [` + accepted + `, ` + call(1, 2, "") + `] }`,
		"rate 2000, called 1000, called 7000": `{ state: "done", timeline: [` + accepted + `, ` + call(2, 3, "") + `, { what: "operation", ` + at(9) +
			`, ended: "2026-01-02T15:00:10Z" }, { what: "inquiry", ` + at(12) + ` }] }`,
		"": `{ state: "dead", timeline: [{ what: "letter", ` + at(3) + ` }] }`,
	} {
		got := eval[string](b, `import("/console/timebar.js").then(({ spans }) => spans(`+job+`, Date.parse("2026-01-02T15:00:30Z")).map((s) => s.kind + " " + s.ms).join(", "))`)
		if got != want {
			t.Errorf("it tells %q, want %q", got, want)
		}
	}
}
