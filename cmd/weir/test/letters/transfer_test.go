package letters

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/internal/ops/outlook"
	"weir/cmd/weir/internal/ops/verify"
	"weir/cmd/weir/internal/ops/whatif"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/web"
)

// TestLettersGoOutAndComeInOverHTTP: an export over HTTP is byte for byte what the command writes. Imported into
// another weir it becomes the same letters, once. Only an operator may import, and other roles are told so. What is not
// a letter is refused, and the letters before it stay.
func TestLettersGoOutAndComeInOverHTTP(t *testing.T) {
	t.Parallel()
	r := weirtest.OverHTTP(t)
	r.Producer().Submit("weir.jobs.a.k%2F2", []byte{0xff, 0, '\n', '<'}, map[string]string{"Nats-Msg-Id": "bytes"})
	r.Eventually("two letters", func() bool { return r.Store().Messages("WEIR_DEAD") == 2 })
	for token, want := range map[string]int{"": http.StatusUnauthorized, web.CanaryProducer: http.StatusForbidden, web.CanaryViewer: http.StatusForbidden} {
		if status, answer := r.HTTP().Say("GET", "/api/v1/dead/export", token, ""); status != want || strings.Contains(answer, web.CanaryBody) {
			t.Errorf("with the token %q letters are %d %s", token, status, answer)
		}
	}
	if status, answer := r.HTTP().Say("GET", "/api/v1/dead/export?key=nobody", web.CanaryOperator, ""); status != http.StatusNotFound {
		t.Errorf("an export of no letter is %d %s", status, answer)
	}
	if _, events := r.HTTP().Say("GET", "/api/v1/events?type=revealed", web.CanaryViewer, ""); strings.Contains(events, "anna") {
		t.Errorf("an event reports an export that failed: %s", events)
	}
	status, exported := r.HTTP().Say("GET", "/api/v1/dead/export?reason=overflow", web.CanaryOperator, "")
	if file := r.CLI().Must("dead", "export", "--reason", "overflow"); status != http.StatusOK || exported != file {
		t.Fatalf("the export is %d\n%s\nthe command's\n%s", status, exported, file)
	}
	if _, events := r.HTTP().Say("GET", "/api/v1/events?type=revealed", web.CanaryViewer, ""); !strings.Contains(events, `"selection":"reason=overflow"`) || !strings.Contains(events, "anna, over HTTP") {
		t.Errorf("no event names the user that exported the letters: %s", events)
	}
	other := weirtest.NewRig(t, fakeapi.Options{}, `apis: {a: {url: %s, bucket: {rate: 1/s, capacity: 1}}}`)
	send := func(path, body string) (told deadview.Imported, status int, answer string) {
		t.Helper()
		status, answer = other.HTTP().Say("POST", path, "", body)
		_ = json.Unmarshal([]byte(answer), &told) // else it is a problem
		return told, status, answer
	}
	if told, status, answer := send("/api/v1/dead/import?dry_run=true", exported); status != http.StatusOK || told.Letters != 2 || other.Store().Messages("WEIR_DEAD") != 0 {
		t.Errorf("a dry run: %d %s", status, answer)
	}
	lines := strings.SplitAfter(exported, "\n")
	if _, status, answer := send("/api/v1/dead/import", lines[0]+"{}\n"); status != http.StatusBadRequest || !strings.Contains(answer, "letter 2 of the file") || !strings.Contains(answer, "1 were stored") {
		t.Errorf("a line that is no letter: %d %s", status, answer)
	}
	if told, status, answer := send("/api/v1/dead/import", exported); status != http.StatusOK || told.Stored != 1 || told.Known != 1 {
		t.Errorf("an import that goes on: %d %s", status, answer)
	}
	if told, status, answer := send("/api/v1/dead/import", exported); status != http.StatusOK || told.Stored != 0 || told.Known != 2 {
		t.Errorf("an import again: %d %s", status, answer)
	}
	if _, again := other.HTTP().Say("GET", "/api/v1/dead/export", "", ""); again != exported {
		t.Errorf("exported again it is\n%s\nwant\n%s", again, exported)
	}
	if _, status, answer := send("/api/v1/dead/import", `{"body":"`+strings.Repeat("x", 5<<20)+`"}`); status != http.StatusBadRequest || other.Store().Messages("WEIR_DEAD") != 2 {
		t.Errorf("a line without an end: %d %s", status, answer)
	}
}

// TestPlanAndVerifyOverHTTP: both tell what the commands tell, begin with the limits of an api that is named, and refuse what cannot be.
func TestPlanAndVerifyOverHTTP(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `apis: {pay: {url: %s, price: 0.10, bucket: {rate: 50/s, capacity: 20}, limits: [{name: account, rate: 100/s}]}}`)
	for i := range 8 {
		r.Producer().Submit(fmt.Sprint("weir.jobs.pay.k", i%3), []byte("x"), nil)
	}
	r.AwaitCalls(8)
	r.Eventually("the records", func() bool { return r.Store().Messages("WEIR_CALLS") == 8 })
	status, answer := r.HTTP().Say("POST", "/api/v1/verify", "", "")
	var found verify.Findings
	if err := json.Unmarshal([]byte(answer), &found); err != nil || status != http.StatusOK || len(found.Reports) != 1 {
		t.Fatalf("verify: %d %s", status, answer)
	}
	got, _ := json.Marshal(found.Reports[0])
	told, code := r.CLI().Run("verify", "--json") // it ends with 1 where the machine held a call up on its way
	if want := strings.TrimSpace(told); string(got) != want || (code == 0) != (found.Reports[0].Verdict == bucket.Pass) || code > 1 {
		t.Errorf("verify tells\n%s\nthe command\n%s, and ends with %d", got, want, code)
	}
	js := r.Operators()
	for most, tooMuch := range map[verify.Bounds]bool{{Calls: 7}: true, {Keys: 2}: true, {Calls: 8, Keys: 3, Jobs: 1}: false} {
		c := &connect.Connection{Conn: js.Conn(), JetStream: js, Denied: &connect.Denials{}}
		if _, err := verify.Find(t.Context(), c, verify.Options{Talk: io.Discard, Most: most}); errors.Is(err, verify.ErrTooMuch) != tooMuch || err != nil && !tooMuch {
			t.Errorf("%+v: %v", most, err)
		}
	}
	var trace strings.Builder
	trace.WriteString("time,key\n")
	for i := range 60 {
		fmt.Fprintf(&trace, "%g,k%d\n", float64(i)/40, i%2)
	}
	file := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(file, []byte(trace.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for query, args := range map[string][]string{
		"rate=2/s&capacity=5":                        {"--rate", "2/s", "--capacity", "5"},
		"rate=4/s&burst=3&capacity=9&call_time=90ms": {"--rate", "4/s", "--burst", "3", "--capacity", "9", "--call-time", "90ms"},
		"suggest=true&longest_wait=3s":               {"--suggest", "--longest-wait", "3s"},
		"api=pay&rate=3/s&capacity=4":                {"-f", filepath.Join(r.Dir, "weir.yaml"), "--rate", "3/s", "--capacity", "4"},
	} {
		status, answer := r.HTTP().Say("POST", "/api/v1/plan?"+query, "", trace.String())
		if want := r.CLI().Must(slices.Concat([]string{"plan", "--trace", file, "--json"}, args)...); status != http.StatusOK || strings.TrimSpace(answer) != strings.TrimSpace(want) {
			t.Errorf("plan %s: %d %s\nthe command: %s", query, status, answer, want)
		}
		var o whatif.Outcome
		if err := json.Unmarshal([]byte(answer), &o); err != nil || o.Jobs != 60 {
			t.Errorf("plan %s: %v %s", query, err, answer)
		}
	}
	for path, want := range map[string]int{
		"/plan?rate=2/s": 400, "/plan?capacity=2": 400, "/plan?rate=2/s&capacity=5&burst=3": 400, "/plan?api=other": 404, "/plan?rate=2/s&capacity=5&longest_wait=1s": 400,
		"/plan?rate=x&capacity=5": 400, "/plan?rate=1/s&capacity=5&call_time=soon": 400, "/verify?api=other": 404, "/verify?since=x": 400,
		"/outlook?api=pay": 400, "/outlook?since=2999-01-01T00:00:00Z": 400, "/outlook?since=1d&api=other": 404, "/outlook?since=1d&account=acme": 404,
	} {
		if status, answer := r.HTTP().Say("POST", "/api/v1"+path, "", trace.String()); status != want {
			t.Errorf("%s is %d %s", path, status, answer)
		}
	}
	var ahead outlook.Outlook
	status, answer = r.HTTP().Say("POST", "/api/v1/outlook?since=1d", "", "")
	if err := json.Unmarshal([]byte(answer), &ahead); err != nil || status != http.StatusOK || len(ahead.APIs) != 1 || ahead.APIs[0].Calls != 8 {
		t.Errorf("the outlook is %d %s, %v", status, answer, err)
	}
	if status, answer := r.HTTP().Say("POST", "/api/v1/plan?rate=2/s&capacity=5", "", "time,key\nx,y\n"); status != http.StatusBadRequest || !strings.Contains(answer, "trace:2") {
		t.Errorf("a bad line: %d %s", status, answer)
	}
}
