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
	return &Rule{For: time.Minute, Path: true, Body: true, Headers: []string{"Accept"}}
}

func job(change func(j *ingest.Job)) *ingest.Job {
	j := &ingest.Job{API: "a", Key: "k", ID: "1", Method: "POST", Path: "/x", Query: "q=1", Body: []byte("body"), Header: nats.Header{}}
	if change != nil {
		change(j)
	}
	return j
}

func forward(j *ingest.Job, name string, values ...string) {
	for _, v := range values {
		j.Forward = append(j.Forward, ingest.HeaderField{Name: name, Value: v})
	}
}

// TestWhatIsCompared changes one thing of a job at a time, and checks whether that makes another request.
func TestWhatIsCompared(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what   string
		change func(j *ingest.Job)
		part   func(r *Rule) // leaves out what was changed; nil if it is always compared or never
		ever   bool          // it makes another request
	}{
		{"the api", func(j *ingest.Job) { j.API = "b" }, nil, true},
		{"the method", func(j *ingest.Job) { j.Method = "DELETE" }, nil, true},
		{"the path", func(j *ingest.Job) { j.Path = "/X" }, func(r *Rule) { r.Path = false }, true},
		{"the query", func(j *ingest.Job) { j.Query = "" }, func(r *Rule) { r.Path = false }, true},
		{"the body", func(j *ingest.Job) { j.Body = []byte("body ") }, func(r *Rule) { r.Body = false }, true},
		{"no body", func(j *ingest.Job) { j.Body = nil }, func(r *Rule) { r.Body = false }, true},
		{"a header", func(j *ingest.Job) { forward(j, "Accept", "text/plain") }, func(r *Rule) { r.Headers = nil }, true},
		{"an empty header", func(j *ingest.Job) { forward(j, "Accept", "") }, func(r *Rule) { r.Headers = nil }, true},
		{"another header", func(j *ingest.Job) { forward(j, "X-Other", "text/plain") }, nil, false},
		{"its id", func(j *ingest.Job) { j.ID, j.DedupeID = "2", "3"; j.Header.Set(ingest.HeaderJobID, "2") }, nil, false},
		{"its deadline", func(j *ingest.Job) { j.Deadline = time.Unix(1, 0) }, nil, false},
		{"its reply subject", func(j *ingest.Job) { j.ReplyTo = "_INBOX.x" }, nil, false},
	} {
		if got := whole().Of(job(nil)) != whole().Of(job(c.change)); got != c.ever {
			t.Errorf("%s: another request: %v, want %v", c.what, got, c.ever)
		}
		if c.part == nil {
			continue
		}
		less := whole()
		if c.part(less); less.Of(job(nil)) != less.Of(job(c.change)) {
			t.Errorf("%s: not compared, and yet another request", c.what)
		}
	}
}

// TestKeysAreApart: jobs of different keys ask the same thing only if the rule says so, and those of different tenants
// never do.
func TestKeysAreApart(t *testing.T) {
	t.Parallel()
	of := func(r Rule, key string) Sum { return r.Of(job(func(j *ingest.Job) { j.Key = key })) }
	own, across, tenants := *whole(), *whole(), *whole()
	across.AcrossKeys = true
	tenants.AcrossKeys, tenants.TenantUntil = true, "."
	for _, c := range []struct {
		what  string
		rule  Rule
		a, b  string
		share bool
	}{
		{"two keys", own, "k", "other", false},
		{"two keys, across keys", across, "k", "other", true},
		{"two keys of a tenant, without across keys", Rule{TenantUntil: "."}, "acme.1", "acme.2", false},
		{"two keys of a tenant", tenants, "acme.1", "acme.2", true},
		{"a tenant's own key", tenants, "acme", "acme.2", true},
		{"keys of two tenants", tenants, "acme.1", "other.1", false},
	} {
		if got := of(c.rule, c.a) == of(c.rule, c.b); got != c.share {
			t.Errorf("%s share an answer: %v", c.what, got)
		}
	}
	if of(own, "k") == of(across, "k") {
		t.Error("an answer that one key was given is shared by all since the rule changed")
	}
}

// TestRulesApart: rules that compare other things give other sums, also where all that they compare is empty.
func TestRulesApart(t *testing.T) {
	t.Parallel()
	empty := &ingest.Job{API: "a"}
	rules := []*Rule{
		{},
		{Target: "there"},
		{AcrossKeys: true},
		{AcrossKeys: true, TenantUntil: "."},
		{Path: true},
		{Body: true},
		{Path: true, Body: true},
		{Headers: []string{"A"}},
		{Headers: []string{"B"}},
		{Headers: []string{"A", "B"}},
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

// FuzzRequestsApart: two jobs write the same only if everything that is compared of them is the same.
func FuzzRequestsApart(f *testing.F) {
	f.Add("GET", "/a", "b", "", "", []byte("x"), "GET", "/", "ab", "", "", []byte("x"))
	f.Add("GET", "/a", "", "v", "", []byte{}, "GET", "/a", "", "", "v", []byte{})
	f.Add("", "\x01", "\x00", "", "", []byte{1, 0}, "", "\x01\x00", "", "", "", []byte{1, 0})
	f.Fuzz(func(t *testing.T, m1, p1, q1, h1, g1 string, b1 []byte, m2, p2, q2, h2, g2 string, b2 []byte) {
		a := &ingest.Job{API: "a", Key: "k", Method: m1, Path: p1, Query: q1, Body: b1}
		b := &ingest.Job{API: "a", Key: "k", Method: m2, Path: p2, Query: q2, Body: b2}
		forward(a, "Accept", h1, g1)
		forward(b, "Accept", h2, g2)
		var x, y bytes.Buffer
		whole().write(&x, a)
		whole().write(&y, b)
		same := m1 == m2 && p1 == p2 && q1 == q2 && h1 == h2 && g1 == g2 && bytes.Equal(b1, b2)
		if bytes.Equal(x.Bytes(), y.Bytes()) != same || (whole().Of(a) == whole().Of(b)) != same {
			t.Errorf("%q and %q are written the same: %v", x.Bytes(), y.Bytes(), !same)
		}
	})
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
