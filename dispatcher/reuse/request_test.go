package reuse

import (
	"bytes"
	"slices"
	"testing"
	"testing/quick"
	"time"

	"weir/ingest"

	"github.com/nats-io/nats.go"
)

func whole() *Rule {
	return &Rule{For: time.Minute, Parts: Parts{Method: true, Path: true, Query: true, Body: true}}
}

func job(change func(j *ingest.Job)) *ingest.Job {
	j := &ingest.Job{API: "a", Key: "k", ID: "1", Method: "POST", Path: "/x", Query: "q=1", Body: []byte("body"), Header: nats.Header{}}
	if change != nil {
		change(j)
	}
	return j
}

// TestWhatIsCompared changes one thing of a job at a time.
func TestWhatIsCompared(t *testing.T) {
	t.Parallel()
	all := Parts{Method: true, Path: true, Query: true, Body: true, Headers: []string{"Accept"}}
	for _, c := range []struct {
		what   string
		change func(j *ingest.Job)
		part   func(p *Parts) // leaves out what was changed; nil if it is always compared or never
		ever   bool           // it makes another request
	}{
		{"the api", func(j *ingest.Job) { j.API = "b" }, nil, true},
		{"the method", func(j *ingest.Job) { j.Method = "PUT" }, func(p *Parts) { p.Method = false }, true},
		{"the path", func(j *ingest.Job) { j.Path = "/X" }, func(p *Parts) { p.Path = false }, true},
		{"the query", func(j *ingest.Job) { j.Query = "" }, func(p *Parts) { p.Query = false }, true},
		{"the body", func(j *ingest.Job) { j.Body = []byte("body ") }, func(p *Parts) { p.Body = false }, true},
		{"no body", func(j *ingest.Job) { j.Body = nil }, func(p *Parts) { p.Body = false }, true},
		{"a header", func(j *ingest.Job) { j.Header.Set("accept", "text/plain") }, func(p *Parts) { p.Headers = nil }, true},
		{"a forwarded header", func(j *ingest.Job) { j.Header.Set("Weir-Header-Accept", "text/plain") }, func(p *Parts) { p.Headers = nil }, true},
		{"another header", func(j *ingest.Job) { j.Header.Set("X-Other", "text/plain") }, nil, false},
		{"its id", func(j *ingest.Job) { j.ID, j.DedupeID = "2", "3"; j.Header.Set(ingest.HeaderJobID, "2") }, nil, false},
		{"its deadline", func(j *ingest.Job) { j.Deadline = time.Unix(1, 0) }, nil, false},
		{"its reply subject", func(j *ingest.Job) { j.ReplyTo = "_INBOX.x" }, nil, false},
	} {
		r := &Rule{Parts: all}
		if got := r.Of(job(nil)) != r.Of(job(c.change)); got != c.ever {
			t.Errorf("%s: another request: %v, want %v", c.what, got, c.ever)
		}
		if c.part == nil {
			continue
		}
		less := &Rule{Parts: all}
		if c.part(&less.Parts); less.Of(job(nil)) != less.Of(job(c.change)) {
			t.Errorf("%s: not compared, and yet another request", c.what)
		}
	}
}

// TestKeysAreApart: jobs of different keys ask the same thing only if the rule says so.
func TestKeysAreApart(t *testing.T) {
	t.Parallel()
	other := job(func(j *ingest.Job) { j.Key = "other" })
	if r := whole(); r.Of(job(nil)) == r.Of(other) {
		t.Error("two keys share an answer")
	}
	across := whole()
	across.AcrossKeys = true
	if across.Of(job(nil)) != across.Of(other) {
		t.Error("across keys, and yet two keys do not share an answer")
	}
	if across.Of(job(nil)) == whole().Of(job(nil)) {
		t.Error("an answer that one key was given is shared by all since the rule changed")
	}
}

// TestRulesApart: rules that compare other things give other sums, also where all that they compare is empty.
func TestRulesApart(t *testing.T) {
	t.Parallel()
	empty := &ingest.Job{API: "a"}
	rules := []*Rule{
		{}, {Target: "there"}, {AcrossKeys: true}, {Parts: Parts{Method: true}}, {Parts: Parts{Path: true}}, {Parts: Parts{Query: true}},
		{Parts: Parts{Body: true}}, {Parts: Parts{Headers: []string{"A"}}}, {Parts: Parts{Headers: []string{"B"}}}, {Parts: Parts{Path: true, Query: true}},
	}
	for i, a := range rules {
		for k, b := range rules {
			if (a.Of(empty) == b.Of(empty)) != (i == k) || a.CompareAlike(b) != (i == k) {
				t.Errorf("rules %d and %d: %+v, %+v", i, k, a, b)
			}
		}
	}
	if (*Rule)(nil).CompareAlike(rules[0]) || rules[0].CompareAlike(nil) || !(*Rule)(nil).CompareAlike(nil) {
		t.Error("no rule compares like another")
	}
}

// FuzzRequestsApart: what is compared of two jobs is written the same only if it is the same.
func FuzzRequestsApart(f *testing.F) {
	f.Add("GET", "/a", "b", "", "", []byte("x"), "GET", "/", "ab", "", "", []byte("x"))
	f.Add("GET", "/a", "", "v", "", []byte{}, "GET", "/a", "", "", "v", []byte{})
	f.Add("", "\x01", "\x00", "", "", []byte{1, 0}, "", "\x01\x00", "", "", "", []byte{1, 0})
	f.Fuzz(func(t *testing.T, m1, p1, q1, h1, g1 string, b1 []byte, m2, p2, q2, h2, g2 string, b2 []byte) {
		r := &Rule{Parts: Parts{Method: true, Path: true, Query: true, Body: true, Headers: []string{"Accept"}}}
		a := &ingest.Job{API: "a", Key: "k", Method: m1, Path: p1, Query: q1, Body: b1, Header: nats.Header{"Accept": {h1}, "Weir-Header-Accept": {g1}}}
		b := &ingest.Job{API: "a", Key: "k", Method: m2, Path: p2, Query: q2, Body: b2, Header: nats.Header{"Accept": {h2}, "Weir-Header-Accept": {g2}}}
		var x, y bytes.Buffer
		r.write(&x, a)
		r.write(&y, b)
		same := m1 == m2 && p1 == p2 && q1 == q2 && h1 == h2 && g1 == g2 && bytes.Equal(b1, b2)
		if bytes.Equal(x.Bytes(), y.Bytes()) != same || (r.Of(a) == r.Of(b)) != same {
			t.Errorf("%q and %q are written the same: %v", x.Bytes(), y.Bytes(), !same)
		}
	})
}

// TestHeadersInAnyCase: the values of a header over all spellings of its name are compared, always in one order.
func TestHeadersInAnyCase(t *testing.T) {
	t.Parallel()
	r := &Rule{Parts: Parts{Headers: []string{"Accept"}}}
	want := r.Of(job(func(j *ingest.Job) { j.Header = nats.Header{"ACCEPT": {"a"}, "Accept": {"b"}, "accept": {"c"}} }))
	for range 50 {
		if r.Of(job(func(j *ingest.Job) { j.Header = nats.Header{"accept": {"c"}, "ACCEPT": {"a"}, "Accept": {"b"}} })) != want {
			t.Fatal("the same headers give another sum")
		}
	}
	if r.Of(job(func(j *ingest.Job) { j.Header = nats.Header{"Accept": {"a", "b"}} })) == r.Of(job(func(j *ingest.Job) { j.Header = nats.Header{"Accept": {"b", "a"}} })) {
		t.Error("the order of a header's values is not compared")
	}
}

func TestSumAsText(t *testing.T) {
	t.Parallel()
	if err := quick.Check(func(s [32]byte) bool {
		got, ok := ParseSum(Sum(s).String())
		return ok && got == Sum(s)
	}, nil); err != nil {
		t.Error(err)
	}
	good := Sum{}.String()
	for _, bad := range []string{"", "x", good[1:], good + "A", good[:len(good)-1] + "B", "=" + good[1:]} {
		if _, ok := ParseSum(bad); ok {
			t.Errorf("%q is read as a sum", bad)
		}
	}
	if slices.Contains([]byte(good), '.') {
		t.Error("a sum has a dot")
	}
}
