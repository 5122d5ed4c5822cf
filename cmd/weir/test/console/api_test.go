package console

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/web"
	"weir/ingest/await"
)

// paths of the rig's questions, by what the document calls them.
var askedPaths = map[string]string{
	"/api/v1/apis/{api}/keys": "/api/v1/apis/a/keys?limit=1", "/api/v1/apis/{api}/keys/{key}": "/api/v1/apis/a/keys/k%2F2", "/api/v1/jobs/{id}": "/api/v1/jobs/waits",
	"/api/v1/results/{api}/{id}": "/api/v1/results/a/done?key=one", "/api/v1/dead/{seq}": "/api/v1/dead/1", "/api/v1/config/versions/{version}": "/api/v1/config/versions/1",
	"/api/v1/config/diff": "/api/v1/config/diff?from=1&to=1", "/api/v1/history": "/api/v1/history?api=a", "/v1/jobs/{api}/{name}": "/v1/jobs/a/done?key=one",
	"/api/v1/redrives/{name}": "", "/api/v1/stream": "", "/api/v1/dead/export": "",
	"/api/v1/apis/{api}/key": "/api/v1/apis/a/key?key=k%2F2", "/api/v1/apis/{api}/use": "/api/v1/apis/a/use",
}

// The operator's requests to the rig, in this order.
var askedWords = []struct{ template, path, body string }{
	{"/api/v1/apis/{api}/pause", "/api/v1/apis/a/pause", `{"for": "1h"}`},
	{"/api/v1/apis/{api}/resume", "/api/v1/apis/a/resume", ""},
	{"/api/v1/apis/{api}/keys/{key}/pause", "/api/v1/apis/a/keys/k%2F2/pause", ""},
	{"/api/v1/dead/{seq}/reveal", "/api/v1/dead/1/reveal", ""},
	{"/api/v1/dead/redrive/plan", "/api/v1/dead/redrive/plan", `{"reason": "overflow"}`},
	{"/api/v1/apis/{api}/jobs/{id}/cancel", "/api/v1/apis/a/jobs/waits/cancel", `{"why": "a test"}`},
	{"/api/v1/redrives", "/api/v1/redrives", `{"seqs": [1], "name": "again", "why": "a test"}`},
	{"/api/v1/dead/purge", "/api/v1/dead/purge", `{"all": true, "dry_run": true}`},
	{"/api/v1/config/check", "/api/v1/config/check", `{"yaml": "apis: {x: 1}"}`},
	{"/api/v1/config/rollback", "", ""},
	{"/api/v1/apis/{api}/key/pause", "/api/v1/apis/a/key/pause?key=..", `{"for": "1h"}`},
	{"/api/v1/apis/{api}/key/resume", "/api/v1/apis/a/key/resume?key=..", ""},
	{"/api/v1/plan", "/api/v1/plan?rate=1/s&capacity=5", "time,key\n0,a\n0.1,a\n"},
	{"/api/v1/outlook", "/api/v1/outlook?api=a&since=1d", ""},
	{"/api/v1/verify", "/api/v1/verify?since=1d", ""},
	{"/api/v1/dead/import", "/api/v1/dead/import?dry_run=true", `{"stored": "2026-01-02T15:04:05Z", "subject": "weir.dead.a.overflow.k", "headers": {}}`},
	{"/api/v1/apis/{api}/keys/{key}/resume", "/api/v1/apis/a/keys/k%2F2/resume", ""},
}

// TestOpenAPIDocument: every way in is described and nothing else, every answer is as it is described, and no secret stands in any.
func TestOpenAPIDocument(t *testing.T) {
	t.Parallel()
	r := weirtest.OverHTTP(t)
	d := r.HTTP().Document()
	var routes, described []string
	for _, route := range r.Worker.Parts().Routes {
		if strings.HasPrefix(route.Path, "/api/v1/") || strings.HasPrefix(route.Path, "/v1/") {
			// The document has one path for {id} and {key}.
			path := regexp.MustCompile(`^(/v1/jobs/\{api\}/)\{(id|key)\}$`).ReplaceAllString(route.Path, "$1{name}")
			routes = append(routes, strings.ToLower(route.Method)+" "+path)
		}
	}
	for path, item := range d.Paths {
		for method := range item {
			described = append(described, method+" "+path)
		}
	}
	slices.Sort(routes)
	slices.Sort(described)
	if !slices.Equal(routes, described) {
		t.Errorf("the ways in are\n%s\nthe document has\n%s", strings.Join(routes, "\n"), strings.Join(described, "\n"))
	}
	clean := func(what, answer string, allowed ...string) {
		t.Helper()
		for _, secret := range []string{web.CanaryHeader, web.CanaryProducer, web.CanaryViewer, web.CanaryOperator, "canary-of-a-body"} {
			if strings.Contains(answer, secret) && !slices.Contains(allowed, secret) {
				t.Errorf("%s tells %s: %s", what, secret, answer)
			}
		}
	}
	for template, item := range d.Paths {
		if _, asks := item["get"]; !asks {
			continue
		}
		path, named := askedPaths[template]
		if !named {
			path = template
		}
		if path == "" {
			continue
		}
		token := web.CanaryViewer
		if strings.HasPrefix(path, "/v1/") {
			token = web.CanaryProducer
		}
		status, answer := r.HTTP().Say("GET", path, token, "")
		if status != http.StatusOK {
			t.Errorf("GET %s answers %d %s", path, status, answer)
			continue
		}
		if template != "/api/v1/openapi.json" {
			d.Check(t, "get", template, answer)
		}
		clean("GET "+path, answer)
	}
	_, metrics := r.HTTP().Say("GET", "/metrics", web.CanaryViewer, "")
	clean("/metrics", metrics)
	for _, word := range askedWords {
		if word.path == "" {
			continue
		}
		status, answer := r.HTTP().Say("POST", word.path, web.CanaryOperator, word.body)
		if status != http.StatusOK {
			t.Errorf("POST %s answers %d %s", word.path, status, answer)
			continue
		}
		d.Check(t, "post", word.template, answer)
		if strings.HasSuffix(word.path, "/reveal") {
			clean("POST "+word.path, answer, "canary-of-a-body")
			if !strings.Contains(answer, "canary-of-a-body") {
				t.Errorf("a letter is revealed without its body: %s", answer)
			}
		} else {
			clean("POST "+word.path, answer)
		}
	}
	status, answer := r.HTTP().Say("GET", "/api/v1/redrives/again", web.CanaryViewer, "")
	if d.Check(t, "get", "/api/v1/redrives/{name}", answer); status != http.StatusOK || !strings.Contains(answer, "anna, over HTTP") {
		t.Errorf("the redrive is %d %s", status, answer)
	}
	if _, events := r.HTTP().Say("GET", "/api/v1/events?type=revealed", web.CanaryViewer, ""); !strings.Contains(events, `"who":"anna, over HTTP"`) {
		t.Errorf("no event names the user that looked at a body: %s", events)
	}
	status, answer = r.HTTP().Say("POST", "/api/v1/config/apply", web.CanaryOperator, `{"yaml": "apis: {}\n", "dry_run": true}`)
	if d.Check(t, "post", "/api/v1/config/apply", answer); status != http.StatusOK {
		t.Errorf("a dry run: %d %s", status, answer)
	}
}

// TestNobodyDoesMoreThanHisRole: every endpoint refuses clients without a token, and roles that it is not for.
func TestNobodyDoesMoreThanHisRole(t *testing.T) {
	t.Parallel()
	r := weirtest.OverHTTP(t)
	tokens := map[console.Role]string{console.Anybody: "", console.Producer: web.CanaryProducer, console.Viewer: web.CanaryViewer}
	for _, route := range r.Worker.Parts().Routes {
		if route.Role == console.Anybody {
			continue
		}
		path := strings.NewReplacer("{api}", "a", "{key}", "one", "{id}", "done", "{seq}", "1", "{version}", "1", "{name}", "again", "{$}", "").Replace(route.Path)
		for role, token := range tokens {
			if route.Role == role || role != console.Anybody && route.Role == console.AnyRole {
				continue
			}
			want := http.StatusForbidden
			if role == console.Anybody {
				want = http.StatusUnauthorized
			}
			if status, answer := r.HTTP().Say(route.Method, path, token, ""); status != want {
				t.Errorf("%s %s by %s answers %d %s, want %d", route.Method, path, role, status, answer, want)
			}
		}
	}
	if letters := r.Store().Messages("WEIR_DEAD"); letters != 1 {
		t.Errorf("%d letters are left: a client without the right did something", letters)
	}
}

// TestPagesOfLetters: pages hold every letter once, newest first, even if a filter chooses few.
func TestPagesOfLetters(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  a: {url: %s, bucket: {rate: 1/h, capacity: 1}}
`)
	for i := range 24 {
		r.Producer().Submit(fmt.Sprintf("weir.jobs.a.k%d", i%3), []byte("x"), map[string]string{"Nats-Msg-Id": fmt.Sprint(i)})
		if i == 2 { // of each key the first is called, the next waits, and the six that follow find no room
			r.Eventually("the end of the first jobs", func() bool {
				return len(r.API.All()) == 3 && r.Store().Waiting("a") == 0
			})
		}
	}
	r.Eventually("the letters", func() bool { return r.Store().Messages("WEIR_DEAD") == 18 })
	for query, want := range map[string]int{"": 18, "&key=k1": 6, "&reason=overflow": 18} {
		var seqs []uint64
		for before := ""; ; {
			_, answer := r.HTTP().Say("GET", "/api/v1/dead?limit=4"+query+before, "", "")
			var page struct {
				Letters []struct{ Seq uint64 }
				Next    uint64
			}
			if err := json.Unmarshal([]byte(answer), &page); err != nil || len(page.Letters) > 4 {
				t.Fatalf("a page is %s", answer)
			}
			for _, l := range page.Letters {
				seqs = append(seqs, l.Seq)
			}
			if page.Next == 0 {
				break
			}
			before = fmt.Sprintf("&before=%d", page.Next)
		}
		newest := slices.Clone(seqs)
		slices.Sort(newest)
		slices.Reverse(newest)
		if len(seqs) != want || !slices.Equal(seqs, newest) || len(slices.Compact(newest)) != want {
			t.Errorf("pages of %q hold %v, want %d letters", query, seqs, want)
		}
	}
}

// TestStreamTellsWhatHappens: the stream sends a snapshot first, and events unchanged. A client that reconnects gets
// what it missed.
func TestStreamTellsWhatHappens(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  a: {url: %s, bucket: {rate: 1/h, capacity: 1}}
`)
	open := func(last string) *bufio.Reader {
		q, err := http.NewRequestWithContext(await.Context(t, "the stream"), http.MethodGet, "http://"+r.Worker.HTTPAddr()+"/api/v1/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		if last != "" {
			q.Header.Set("Last-Event-ID", last)
		}
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		if kind := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || kind != "text/event-stream" {
			t.Fatalf("the stream is %d %s", res.StatusCode, kind)
		}
		return bufio.NewReader(res.Body)
	}
	next := func(in *bufio.Reader, kind string) (id, data string) {
		t.Helper()
		for name := ""; ; {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatalf("the stream ends before a %s: %v", kind, err)
			}
			field, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch field {
			case "event":
				name, id = value, ""
			case "id":
				id = value
			case "data":
				if name == kind {
					return id, value
				}
			}
		}
	}
	in := open("")
	if _, data := next(in, "snapshot"); !strings.Contains(data, `"healthy":true`) || !strings.Contains(data, `"deepest":{`) {
		t.Errorf("the snapshot is %s", data)
	}
	r.Producer().Submit("weir.jobs.a.k", []byte("x"), map[string]string{"Nats-Msg-Id": "1"})
	r.Eventually("the call", func() bool { return len(r.API.All()) > 0 && r.Store().Waiting("a") == 0 })
	r.Producer().Submit("weir.jobs.a.k", []byte("x"), map[string]string{"Nats-Msg-Id": "2"})
	r.Producer().Submit("weir.jobs.a.k", []byte("x"), map[string]string{"Nats-Msg-Id": "3"})
	id, data := next(in, "event")
	if id == "" || !strings.Contains(data, "weir.throttled.v1") || !strings.Contains(data, `"job":"3"`) {
		t.Errorf("the event is %s: %s", id, data)
	}
	if again, _ := next(open("0"), "event"); again == "" {
		t.Errorf("a client that has heard nothing gets event %q", again)
	}
	r.Producer().Submit("weir.jobs.a.k", []byte("x"), map[string]string{"Nats-Msg-Id": "4"})
	if later, data := next(open(id), "event"); later == id || !strings.Contains(data, `"job":"4"`) {
		t.Errorf("a client that comes back after %s gets %s: %s", id, later, data)
	}
	for {
		if _, data := next(in, "snapshot"); strings.Contains(data, `"deepest":{"a":[{"key":"k","depth":1`) {
			return
		}
	}
}

// TestDocumentIsCompressed: the OpenAPI document goes out compressed to a client that accepts that.
func TestDocumentIsCompressed(t *testing.T) {
	t.Parallel()
	r := weirtest.OverHTTP(t)
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.Worker.HTTPAddr()+"/api/v1/openapi.json", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+web.CanaryViewer)
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK || !res.Uncompressed {
		t.Errorf("status %d, compressed: %v", res.StatusCode, res.Uncompressed)
	}
}
