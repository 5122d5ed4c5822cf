package httpcall_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/ingest"
)

func TestPackBody(t *testing.T) {
	items := [][]byte{[]byte(`{"a":1}`), []byte(`2`)}
	for _, c := range []struct {
		form httpcall.Form
		want string
	}{
		{httpcall.Form{}, `[{"a":1},2]`},
		{httpcall.Form{Lines: true}, "{\"a\":1}\n2\n"},
		{httpcall.Form{Under: "/requests"}, `{"requests":[{"a":1},2]}`},
		{httpcall.Form{Under: "/batch/x~1y"}, `{"batch":{"x/y":[{"a":1},2]}}`},
	} {
		p := httpcall.Pack{Request: c.form}
		got := string(p.Body(items))
		if got != c.want {
			t.Errorf("%+v: %s, want %s", c.form, got, c.want)
		}
		if n := p.Overhead(2) + 8; n != int64(len(got)) {
			t.Errorf("%+v: %d bytes are reckoned, it has %d", c.form, n, len(got))
		}
	}
}

func TestPackItem(t *testing.T) {
	for _, c := range []struct {
		body, match string
		want        string
		found       bool
	}{
		{" {\"id\": \"a\",\n \"n\": 1} ", "", `{"id":"a","n":1}`, true},
		{`{"id":"a"}`, "/id", `{"id":"a"}`, true},
		{`{"id":7}`, "/id", `{"id":7}`, true},
		{`{"n":1}`, "/id", "", false},
		{`{"id":{}}`, "/id", "", false},
		{``, "", "", false},
		{`{"a":1`, "", "", false},
		{`1 2`, "", "", false},
	} {
		p := httpcall.Pack{Match: c.match}
		item, _, err := p.Item(&ingest.Job{Body: []byte(c.body)})
		if string(item) != c.want || (err == nil) != c.found {
			t.Errorf("%q by %q: %s, %v", c.body, c.match, item, err)
		}
	}
}

func TestPackParts(t *testing.T) {
	idempotent := &httpcall.Idempotency{Header: "Idempotency-Key"}
	type end struct {
		verdict httpcall.Verdict
		reason  deadletter.Reason
		body    string
	}
	done := func(body string) end { return end{httpcall.Delivered, "", body} }
	lost := end{httpcall.Dead, deadletter.Unknown, ""}
	for _, c := range []struct {
		what   string
		pack   httpcall.Pack
		status int
		body   string
		want   []end
	}{
		{"in order", httpcall.Pack{}, 200, `[1, {"a": 2}]`, []end{done("1"), done(`{"a": 2}`)}},
		{"lines", httpcall.Pack{Answers: httpcall.Form{Lines: true}}, 200, "1\n2\n", []end{done("1"), done("2")}},
		{"under a name", httpcall.Pack{Answers: httpcall.Form{Under: "/results"}}, 200, `{"results":[1,2]}`, []end{done("1"), done("2")}},
		{"too few", httpcall.Pack{}, 200, `[1]`, []end{lost, lost}},
		{"too many", httpcall.Pack{}, 200, `[1,2,3]`, []end{lost, lost}},
		{"null for one", httpcall.Pack{}, 200, `[null, 2]`, []end{done("null"), done("2")}},
		{"broken array", httpcall.Pack{}, 200, `[1,2`, []end{lost, lost}},
		{"matched among others", httpcall.Pack{Match: "/id"}, 200, `[1,null,{"id":"c"},{"id":"b"},{"id":"a"},{"id":"c"}]`, []end{done(`{"id":"a"}`), done(`{"id":"b"}`)}},
		{"three times", httpcall.Pack{Match: "/id"}, 200, `[{"id":"b"},{"id":"b"},{"id":"a"},{"id":"b"}]`, []end{done(`{"id":"a"}`), lost}},
		{"no array", httpcall.Pack{}, 200, `{"ok":true}`, []end{lost, lost}},
		{"null", httpcall.Pack{Match: "/id"}, 200, `null`, []end{lost, lost}},
		{"null under a name", httpcall.Pack{Match: "/id", Answers: httpcall.Form{Under: "/results"}}, 200, `{"results":null}`, []end{lost, lost}},
		{"deep under names", httpcall.Pack{Answers: httpcall.Form{Under: "/a~1b/c"}}, 200, `{"a/b":{"c":[1,2]}}`, []end{done("1"), done("2")}},
		{"nothing there", httpcall.Pack{Answers: httpcall.Form{Under: "/results"}}, 200, `{}`, []end{lost, lost}},
		{"not JSON", httpcall.Pack{}, 200, `<html>`, []end{lost, lost}},
		{"broken lines", httpcall.Pack{Answers: httpcall.Form{Lines: true}}, 200, "1\n{", []end{lost, lost}},
		{"matched", httpcall.Pack{Match: "/id"}, 200, `[{"id":"b"},{"id":"a"}]`, []end{done(`{"id":"a"}`), done(`{"id":"b"}`)}},
		{"one is missing", httpcall.Pack{Match: "/id"}, 200, `[{"id":"b"}]`, []end{lost, done(`{"id":"b"}`)}},
		{"one twice", httpcall.Pack{Match: "/id"}, 200, `[{"id":"b"},{"id":"a"},{"id":"b"}]`, []end{done(`{"id":"a"}`), lost}},
		{"its own status", httpcall.Pack{Status: "/s"}, 200, `[{"s":200},{"s":422}]`, []end{done(`{"s":200}`), {httpcall.Dead, deadletter.Rejected, `{"s":422}`}}},
		{"pushed back alone", httpcall.Pack{Status: "/s"}, 200, `[{"s":429},{"s":201}]`, []end{{httpcall.Again, "", `{"s":429}`}, done(`{"s":201}`)}},
		{"failed alone", httpcall.Pack{Status: "/s"}, 200, `[{"s":500},{"s":401}]`, []end{{httpcall.Dead, deadletter.Unknown, `{"s":500}`}, {httpcall.Dead, deadletter.Rejected, `{"s":401}`}}},
		{"without a status", httpcall.Pack{Status: "/s"}, 200, `[{},{"s":"x"}]`, []end{{httpcall.Dead, deadletter.Unknown, `{}`}, {httpcall.Dead, deadletter.Unknown, `{"s":"x"}`}}},
		{"pushed back", httpcall.Pack{}, 429, `slow`, []end{{httpcall.Pushback, "", "slow"}, {httpcall.Pushback, "", "slow"}}},
		{"rejected", httpcall.Pack{}, 400, `bad`, []end{{httpcall.Dead, deadletter.Rejected, "bad"}, {httpcall.Dead, deadletter.Rejected, "bad"}}},
		{"failed", httpcall.Pack{}, 500, `oops`, []end{{httpcall.Again, "", "oops"}, {httpcall.Again, "", "oops"}}},
	} {
		api := &httpcall.API{Idempotency: idempotent, MaxResult: 1 << 10, Pack: &c.pack}
		r := httpcall.Response{Sent: true, Status: c.status, Header: http.Header{}, Body: []byte(c.body)}
		jobs := []*ingest.Job{{Body: []byte(`{"id":"a"}`)}, {Body: []byte(`{"id":"b"}`)}}
		var matches []string
		for _, j := range jobs {
			_, match, err := c.pack.Item(j)
			if err != nil {
				t.Fatal(err)
			}
			matches = append(matches, match)
		}
		for i, got := range c.pack.Parts(api, r, httpcall.Judge(api, r, time.Now()), matches) {
			want := c.want[i]
			if got.Outcome.Verdict != want.verdict || got.Outcome.Reason != want.reason || want.body != "" && string(got.Response.Body) != want.body {
				t.Errorf("%s: job %d: %+v with %s, want %+v", c.what, i, got.Outcome, got.Response.Body, want)
			}
		}
	}
}

// TestPackOfManyAnswers checks that an answer with far more parts than the pack has jobs is taken apart no further than
// needed.
func TestPackOfManyAnswers(t *testing.T) {
	for _, p := range []httpcall.Pack{{}, {Answers: httpcall.Form{Lines: true}}} {
		text := "[1" + strings.Repeat(",1", 1<<16) + "]"
		if p.Answers.Lines {
			text = strings.Repeat("1\n", 1<<16)
		}
		api := &httpcall.API{MaxResult: 1 << 10, Pack: &p}
		r := httpcall.Response{Sent: true, Status: 200, Header: http.Header{}, Body: []byte(text)}
		var parts []httpcall.Part
		if n := testing.AllocsPerRun(1, func() { parts = p.Parts(api, r, httpcall.Judge(api, r, time.Now()), []string{"", ""}) }); n > 1000 {
			t.Errorf("%+v: %.0f allocations", p, n)
		}
		if out := parts[0].Outcome; out.Reason != deadletter.Unknown || !strings.Contains(out.Detail, "more than 2 answers") {
			t.Errorf("%+v: %+v", p, out)
		}
	}
}
