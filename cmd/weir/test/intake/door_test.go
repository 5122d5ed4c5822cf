package intake

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/serve/embedded"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/cmd/weir/weirtest/web"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestJobsOverHTTP: a producer without NATS submits a job, is refused when the bucket is full, and learns what became
// of each.
func TestJobsOverHTTP(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{KeepBody: 100, Headers: []string{"X-Source", "Content-Type"}, Script: func(context.Context, *fakeapi.Request) fakeapi.Behaviour {
		return fakeapi.Behaviour{Answer: fakeapi.AnswerText, Text: "the answer"}
	}}, weirtest.DoorYAML)
	addr := r.Worker.HTTPAddr()
	r.CLI().Must("pause", "credit")
	first := post(t, addr, "credit/a%2Fb%20%25", []byte("hello"), nats.Header{
		"Idempotency-Key": {`"order-1"`}, "Weir-Path": {"/reports"}, "Weir-Method": {"PUT"}, "Content-Type": {"text/x-own"}, "Weir-Header-X-Source": {"web"},
		"Authorization": {"Bearer secret-of-a-proxy"}, "Cookie": {"session=secret-of-a-browser"}, "X-Own": {"dropped"},
	})
	if first.status != 202 || first.Job != "order-1" || first.Key != "a/b %" || first.Position != 1 || first.Seq == 0 {
		t.Fatalf("the first job: %+v", first)
	}
	if want := "/v1/jobs/credit/order-1?key=a%2Fb+%25"; first.header.Get("Location") != want {
		t.Errorf("it is at %s, want %s", first.header.Get("Location"), want)
	}
	if got := first.header.Get("RateLimit-Policy") + " " + first.header.Get("RateLimit"); got != `"bucket";q=3;w=1 "bucket";r=2;t=1` {
		t.Errorf("the bucket is told as %s", got)
	}
	if again := post(t, addr, "credit/a%2Fb%20%25", []byte("hello"), nats.Header{"Nats-Msg-Id": {"order-1"}}); again.status != 202 || !again.Duplicate || again.Seq != first.Seq {
		t.Errorf("sent again it is %+v", again)
	}
	if again := r.Producer().Submit("weir.jobs.credit.a%2Fb%20%25", []byte("hello"), map[string]string{"Nats-Msg-Id": "order-1"}); !again.Duplicate || again.Seq != first.Seq {
		t.Errorf("sent again over NATS it is %+v", again)
	}
	if j := r.HTTP().JobOverHTTP("credit/order-1?key=a%2Fb+%25"); j.Status != 200 || j.State != "queued" || j.Queue == nil || j.Queue.Depth != 1 || j.Result != nil {
		t.Errorf("it waits, and is told as %+v", j)
	}

	events, err := r.NC.SubscribeSync("weir.events.throttled.>")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if p := post(t, addr, "credit/a%2Fb%20%25", nil, nil); p.status != 202 {
			t.Fatalf("%+v", p)
		}
	}
	full := post(t, addr, "credit/a%2Fb%20%25", []byte("one too many"), nats.Header{"Nats-Msg-Id": {"order-4"}})
	if full.status != 429 || full.Status != 429 || full.ErrCode != 20429 || full.Letter == 0 || full.Job != "order-4" || !strings.Contains(full.Detail, "holds 3 of 3") {
		t.Errorf("a full bucket answers %+v", full)
	}
	if got := full.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("as %s", got)
	}
	after, err := strconv.Atoi(full.header.Get("Retry-After"))
	if err != nil || after < 1 || int64(after)*1000 < full.RetryMS || full.header.Get("RateLimit") != fmt.Sprintf(`"bucket";r=0;t=%d`, after) {
		t.Errorf("come back in %s, %s, after %d ms", full.header.Get("Retry-After"), full.header.Get("RateLimit"), full.RetryMS)
	}
	if n := r.Store().Messages("WEIR_DEAD"); n != 1 { // it was there before the answer
		t.Errorf("%d letters", n)
	}
	if n := r.Store().Messages("WEIR_EVENTS"); n < 1 {
		t.Errorf("%d events", n)
	}
	if _, err := events.NextMsg(weirtest.Patience); err != nil {
		t.Errorf("no event: %v", err)
	}
	if j := r.HTTP().JobOverHTTP("credit/order-4"); j.State != "dead" || j.Letter == nil || j.Letter.Seq != full.Letter {
		t.Errorf("the refused job is told as %+v", j)
	}

	r.CLI().Must("resume", "credit")
	r.AwaitCalls(3)
	var done web.JobOverHTTP
	r.Eventually("the result", func() bool {
		done = r.HTTP().JobOverHTTP("credit/order-1")
		return done.State == "done" && done.Result != nil
	})
	if done.Result.Status != 200 || done.Result.Body != "the answer" {
		t.Errorf("the result is %+v", done.Result)
	}
	for _, c := range r.API.All() {
		if c.Header("X-Source") == "web" && (c.Method != "PUT" || !strings.HasSuffix(c.Path, "/reports") || c.Header("Content-Type") != "text/x-own") {
			t.Errorf("called as %s %s %v", c.Method, c.Path, c.Fields)
		}
	}
	if !r.Disk().Holds("one too many") {
		t.Error("the store cannot be searched: mend this test")
	}
	for _, secret := range []string{"secret-of-a-proxy", "secret-of-a-browser", "dropped"} {
		if r.Disk().Holds(secret) {
			t.Errorf("%s was stored", secret)
		}
	}
	if j := r.HTTP().JobOverHTTP("credit/nobody"); j.Status != 404 || j.Detail == "" {
		t.Errorf("an unknown job: %+v", j)
	}
}

// TestJobUnderSeveralKeys: an id that stands under two keys is answered 409 with both, and with either key that job's state.
func TestJobUnderSeveralKeys(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1/h, capacity: 100}\n")
	r.CLI().Run("pause", "pay")
	addr := r.Worker.HTTPAddr()
	for _, key := range []string{"a", "b"} {
		if p := post(t, addr, "pay/"+key, []byte("x"), nat("Nats-Msg-Id", "same")); p.status != http.StatusAccepted {
			t.Fatalf("%+v", p)
		}
	}
	var told struct {
		Keys []string `json:"keys"`
	}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/v1/jobs/pay/same", nil)
	if err != nil {
		t.Fatal(err)
	}
	res := web.Ask(t, q, &told)
	if slices.Sort(told.Keys); res.StatusCode != http.StatusConflict || !slices.Equal(told.Keys, []string{"a", "b"}) {
		t.Errorf("it is %d with %v", res.StatusCode, told.Keys)
	}
	for _, key := range []string{"a", "b"} {
		if j := r.HTTP().JobOverHTTP("pay/same?key=" + key); j.Key != key {
			t.Errorf("with the key %s it is %+v", key, j)
		}
	}
}

// TestOtherSitesHandInNothing: a page of another site has its visitor's browser send nothing to a weir on this machine.
func TestOtherSitesHandInNothing(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, weirtest.DoorYAML)
	for name, set := range map[string]func(*http.Request){
		"of another site":      func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "cross-site") },
		"with another origin":  func(q *http.Request) { q.Header.Set("Origin", "http://evil.example") },
		"by a name of its own": func(q *http.Request) { q.Host = "evil.example" },
	} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.Worker.HTTPAddr()+"/v1/jobs/credit/k", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		set(q)
		var p posted
		if res := web.Ask(t, q, &p); res.StatusCode < 400 || p.Detail == "" {
			t.Errorf("%s: %d %+v", name, res.StatusCode, p)
		}
	}
	if n := r.Store().Waiting("credit") + r.Store().Messages("WEIR_DEAD"); n != 0 {
		t.Errorf("%d jobs came in", n)
	}
}

// TestRolesOverHTTP: only replicas with the intake accept jobs over HTTP, and the others say so. Every replica says
// where a job is.
func TestRolesOverHTTP(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, weirtest.DoorYAML)
	file := filepath.Join(r.Dir, "weir.yaml")
	r.Stop()
	bare, err := embedded.Start(t.Context(), embedded.Options{MaxStore: servers.Roomy, Listen: "127.0.0.1:0", Dir: t.TempDir(), MaxPayload: 8 << 20, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bare.Shutdown)
	start := func(name string, role environment.Role) string {
		w, err := worker.Start(await.Context(t, "a worker to start"), program.ExternalSettings(t, bare.ClientURL(), file, name, role), weirtest.TestLog(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			w.Stop()
			if err := await.Result(t, "the end of "+name, w.Wait); err != nil {
				t.Error(err)
			}
		})
		return w.HTTPAddr()
	}
	calls, takes := start("calls", environment.RoleDispatch), start("takes", environment.RoleIngest)
	if p := post(t, calls, "credit/k", nil, nil); p.status != 503 || p.ErrCode != 20503 || !strings.Contains(p.Detail, "WEIR_ROLES") || p.header.Get("Retry-After") == "" {
		t.Errorf("one that takes no jobs answers %+v", p)
	}
	p := post(t, takes, "credit/k", nil, nat("Nats-Msg-Id", "order-1"))
	if p.status != 202 {
		t.Fatalf("one that takes jobs answers %+v", p)
	}
	r.AwaitCalls(1)
	for _, addr := range []string{calls, takes} {
		await.Until(t, "the result", func() bool {
			q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+p.header.Get("Location"), nil)
			if err != nil {
				t.Fatal(err)
			}
			var j web.JobOverHTTP
			web.Ask(t, q, &j)
			return j.State == "done" && j.Result != nil
		})
	}
}

// TestKillAfterAccepted: a job that was answered 202 is there after a kill -9 in the same moment.
func TestKillAfterAccepted(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	http := servers.FreePort(t)
	r := weirtest.NewKillRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1/h, capacity: 1000}\n", "WEIR_HTTP_LISTEN="+http)
	accepted := map[string]uint64{}
	for round := range 3 {
		for i := range 10 {
			id := fmt.Sprintf("job-%d-%d", round, i)
			p := post(t, http, "pay/k", []byte(id), nat("Nats-Msg-Id", id))
			if p.status != 202 {
				t.Fatalf("%+v", p)
			}
			accepted[id] = p.Seq
		}
		r.Proc.Kill()
		r.Start()
	}
	for id, seq := range accepted {
		if p := post(t, http, "pay/k", []byte(id), nat("Nats-Msg-Id", id)); !p.Duplicate || p.Seq != seq {
			t.Errorf("%s was accepted as %d, and is %+v", id, seq, p)
		}
	}
}
