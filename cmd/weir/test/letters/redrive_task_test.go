package letters

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/weirtest"
	"weir/deadletter"

	"github.com/nats-io/nats.go/jetstream"
)

// TestEdit: an edited letter reaches the api under the job's own id, and the job keeps a note of the changes. An edit
// that is refused leaves the letter. If the call may have been processed, an edit needs explicit permission, even if
// the api is idempotent.
func TestEdit(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, map[string][]string{"old": {"status=422"}, "new": {"status=409"}, "doubt": {"status=500"}})
	r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  pay:
    url: %s
    max_body: 100B
    idempotency: {header: Idempotency-Key}
    forward_headers: [X-Source]
    retry: {attempts: 1}
    bucket: {rate: 100/s, capacity: 20}
`, api.URL()))
	r.Producer().Submit("weir.jobs.pay.k", []byte("wrong"), map[string]string{"Nats-Msg-Id": "order-7", "Weir-Path": "/old", "X-Own": "kept", "Weir-Deadline": "1h"})
	r.Store().Ended("pay", "k", 1)
	first := strconv.FormatUint(r.Store().Letters("pay", "k")[0].Sequence, 10)
	for _, c := range []struct {
		code int
		args []string
	}{
		{cli.ExitUsage, []string{first}},
		{cli.ExitUsage, []string{first, "--set-header", "Weir-Job-Id: other"}},
		{cli.ExitUsage, []string{first, "--unset-header", "nats-msg-id"}},
		{cli.ExitRefused, []string{first, "--data", strings.Repeat("x", 101), "--yes"}},
		{cli.ExitRefused, []string{first, "--set-header", "Weir-Header-X-Other: 1", "--yes"}},
		{cli.ExitRefused, []string{first, "--data", "right"}}, // no weir runs to be asked
		{cli.ExitNotFound, []string{"4711", "--data", "right", "--yes"}},
	} {
		if _, code := r.CLI().Run(append([]string{"dead", "edit"}, c.args...)...); code != c.code {
			t.Errorf("%v: exit code %d, want %d", c.args, code, c.code)
		}
		if letters := r.Store().Letters("pay", "k"); len(letters) != 1 || string(letters[0].Data) != "wrong" || len(r.API.All()) != 1 {
			t.Fatalf("%v: the letters are %+v", c.args, letters)
		}
	}
	status, answer := r.HTTP().Say("POST", "/api/v1/redrives", "", fmt.Sprintf(`{"seqs": [%s], "edit": {"body": %q}}`, first, strings.Repeat("x", 101)))
	if status != http.StatusConflict || !strings.Contains(answer, "max_body") {
		t.Errorf("a body above max_body over HTTP: %d %s", status, answer)
	}
	if out, code := r.CLI().Run("dead", "edit", first, "--data", "right", "--set-header", "weir-path: /new", "--set-header", "Weir-Header-X-Source: shop", "--unset-header",
		"weir-deadline", "--yes"); code != 0 {
		t.Fatalf("%s: exit code %d", out, code)
	}
	r.Eventually("the letter of the edited job", func() bool {
		letters := r.Store().Letters("pay", "k")
		return len(letters) == 1 && letters[0].Header.Get("Weir-Redrives") == "1"
	})
	call := r.AwaitCalls(2)[1]
	if string(call.Body) != "right" || call.Path != "/new" || call.Header("Idempotency-Key") != "order-7" || call.Header("X-Source") != "shop" {
		t.Errorf("the api got %+v", call)
	}
	r.Store().Ended("pay", "k", 1)
	letter := r.Store().Letters("pay", "k")[0]
	want := first + " Weir-Header-X-Source body weir-deadline weir-path"
	if h := letter.Header; h.Get(deadletter.HeaderEdited) != want || h.Get("X-Own") != "kept" || h.Get("Weir-Deadline") != "" || h.Get("Weir-Job-Id") != "order-7" {
		t.Errorf("its letter is %v", h)
	}
	// What was edited stays noted.
	if did, code := r.CLI().Redrive(strconv.FormatUint(letter.Sequence, 10)); code != 0 || did.Redriven != 1 {
		t.Errorf("redriven again: exit code %d, %+v", code, did)
	}
	r.Eventually("its result", func() bool { return len(r.Store().Results("pay", "k")) == 1 })
	if n := r.Store().Messages(deadletter.Stream); n != 0 {
		t.Errorf("%d letters are left", n)
	}

	r.Producer().Submit("weir.jobs.pay.doubt", []byte("wrong"), map[string]string{"Weir-Path": "/doubt"})
	r.Store().Ended("pay", "doubt", 1)
	doubt := strconv.FormatUint(r.Store().Letters("pay", "doubt")[0].Sequence, 10)
	if _, code := r.CLI().Run("dead", "edit", doubt, "--data", "right", "--yes"); code != cli.ExitRefused || len(r.Store().Letters("pay", "doubt")) != 1 {
		t.Errorf("a letter of a call that may have been processed: exit code %d", code)
	}
	if _, code := r.CLI().Run("dead", "edit", doubt, "--data", "right", "--yes", "--include-unknown"); code != 0 {
		t.Errorf("the same with the word for it: exit code %d", code)
	}
}

// TestEditOfALargeBody: an edited body may be as large as the api's max_body, whether a command or a request hands it in.
func TestEditOfALargeBody(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, map[string][]string{"old": {"status=422", "status=422"}})
	r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  pay: {url: %s, max_body: 2MiB, retry: {attempts: 1}, bucket: {rate: 100/s, capacity: 20}}
`, api.URL()))
	body := strings.Repeat("0123456789abcdef", 2<<20/16)
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, edit := range []func(seq string){
		func(seq string) {
			r.CLI().Must("dead", "edit", seq, "--data", "@"+file, "--set-header", "Weir-Path: /new", "--yes")
		},
		func(seq string) {
			said, err := json.Marshal(map[string]any{
				"seqs": json.RawMessage("[" + seq + "]"), "edit": map[string]any{"body": body, "set": map[string][]string{"Weir-Path": {"/new"}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if status, answer := r.HTTP().Say("POST", "/api/v1/redrives", "", string(said)); status != http.StatusOK {
				t.Fatalf("over HTTP: %d %s", status, answer)
			}
		},
	} {
		r.Producer().Submit("weir.jobs.pay.k", []byte("wrong"), map[string]string{"Weir-Path": "/old"})
		r.Eventually("its letter", func() bool { return len(r.Store().Letters("pay", "k")) == 1 })
		edit(strconv.FormatUint(r.Store().Letters("pay", "k")[0].Sequence, 10))
		if call := r.AwaitCalls(2*i + 2)[2*i+1]; call.Path != "/new" || call.BodySize != int64(len(body)) {
			t.Errorf("the api got %d bytes at %s", call.BodySize, call.Path)
		}
		r.Eventually("no letter", func() bool { return len(r.Store().Letters("pay", "k")) == 0 })
	}
	r.Eventually("the edited bodies are deleted", func() bool { // after the task has ended
		return !slices.ContainsFunc(r.Store().Stored("KV_weir_control", "$KV.weir_control.>"), func(msg *jetstream.RawStreamMsg) bool {
			return len(msg.Data) > 64<<10
		})
	})
}
