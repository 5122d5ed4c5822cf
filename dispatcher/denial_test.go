package dispatcher

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/httpcall"
)

// TestDenialTells says what to mend, and nothing that could be a secret.
func TestDenialTells(t *testing.T) {
	api := &httpcall.API{Name: "pay", Credentials: []string{"Authorization", "X-Client"}}
	for _, c := range []struct {
		status         int
		location, want string
	}{
		{401, "", "mend headers.Authorization, headers.X-Client of api pay"},
		{402, "", "settle the account of api pay"},
		{403, "", "mend headers.Authorization, headers.X-Client of api pay"},
		{407, "", "mend headers.Authorization, headers.X-Client of api pay"},
		{301, "https://user:secret@other.example:8443/secret?secret", "write https://other.example:8443 in url of api pay"},
		{308, "/secret/path", "mend url of api pay"},
		{302, "ftp://secret.example/", "mend url of api pay"},
		{307, "https://" + strings.Repeat("secret", 99), "mend url of api pay"},
		{302, "https://sec\x00ret/", "mend url of api pay"},
		{305, "", "mend url of api pay"},
	} {
		h := http.Header{}
		if c.location != "" {
			h.Set("Location", c.location)
		}
		out := httpcall.Judge(api, httpcall.Response{Sent: true, Status: c.status, Header: h}, time.Now())
		for _, word := range []string{c.want, "weir resume pay", "retry.reject"} {
			if !strings.Contains(out.Mend, word) {
				t.Errorf("%d %q does not say %q: %s", c.status, c.location, word, out.Mend)
			}
		}
		if text := out.Detail + out.Mend; strings.Contains(text, "secret") || out.Verdict != httpcall.Denied {
			t.Errorf("%d %q: verdict %d, %s", c.status, c.location, out.Verdict, text)
		}
	}
	out := httpcall.Judge(&httpcall.API{Name: "pay"}, httpcall.Response{Sent: true, Status: 401, Header: http.Header{}}, time.Now())
	if !strings.Contains(out.Mend, "add its credentials under headers") {
		t.Errorf("an api without credentials: %s", out.Mend)
	}
}

// TestDenialWaits: a denial is longer when the api asks for it, and never because of a window that is not used up.
func TestDenialWaits(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "90", 90 * time.Second},
		{"X-RateLimit-Reset", "3600", 0},
		{"X-Shop-Call-Limit", "40/40", 0},
	} {
		h := http.Header{}
		h.Set(c.name, c.value)
		out := httpcall.Judge(&httpcall.API{}, httpcall.Response{Sent: true, Status: 403, Header: h}, time.Now())
		if out.Hold.Wait != c.want || out.Hold.Spent {
			t.Errorf("%s: %s waits %v", c.name, c.value, out.Hold.Wait)
		}
	}
}

// TestDenialHoldsLonger lets probe after probe be denied: the hold doubles up to retry.max and one job after another is tried,
// and a mended configuration is tried at once, whatever a call by the former one still says.
func TestDenialHoldsLonger(t *testing.T) {
	m := steady(t, bucket.Rate{Count: 100, Per: time.Second, Burst: 1})
	s, now := m.s, m.now
	retry := &s.policy.Retry
	retry.Min, retry.Max = time.Second, 4*time.Second
	line := s.line("key", m.part)
	deny := func(task *task) feedback {
		task.policy = s.policy
		f := s.hear(task, CallEnd{Denied: true, Detail: "the api answered 401", Sent: true, Started: now, Now: now})
		return f
	}
	first, second := &task{line: line, seq: 1}, &task{line: line, seq: 2}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
		if i > 0 {
			s.probe = first
		}
		f := deny(first)
		if got := now.Until(s.breaker.until); got != want || len(f.news) != 1 {
			t.Errorf("denial %d holds for %v and tells %d news, want %v", i+1, got, len(f.news), want)
		}
		if keeps := f.notBefore == s.breaker.until; keeps != (i < patientDenials) {
			t.Errorf("denial %d: the job keeps its place: %v", i+1, keeps)
		}
		if f := deny(second); len(f.news) != 0 || f.notBefore < s.breaker.until {
			t.Errorf("a call that was under way is told as news, or made again before the hold is over: %+v", f)
		}
		now = s.breaker.until
	}
	former := s.policy
	next := *former
	s.adopt(&next)
	now = now.Add(-time.Millisecond)
	s.endDenial(now)
	if !s.breaker.denied || s.breaker.until > now || !s.breaker.halfOpen(now) {
		t.Fatalf("a mended configuration is not tried at once, with one call: %+v", s.breaker)
	}
	first.policy, s.probe = former, first
	f := s.hear(first, CallEnd{Denied: true, Sent: true, Started: now, Now: now})
	if s.breaker.until > now || s.probe != nil || len(f.news) != 0 || f.denied {
		t.Errorf("a denial of the former terms holds the present ones: %+v", s.breaker)
	}
	s.probe, second.policy = second, s.policy
	f = s.hear(second, CallEnd{Sent: true, Started: now, Now: now})
	if !s.breaker.closed() || len(f.news) != 1 || f.news[0].until != 0 {
		t.Errorf("a probe that was answered does not end the hold: %+v", s.breaker)
	}
	if s.denyAgain(now.Add(time.Hour), now.Add(-time.Second), "401"); !s.breaker.closed() {
		t.Error("a mark of before is believed after a probe was answered")
	}
	s.breaker = breaker{}
	if s.denyAgain(now.Add(time.Hour), now.Add(-time.Second), "401"); !s.breaker.closed() {
		t.Error("a mark of before is believed after a call was answered in order")
	}
	if s.denyAgain(now.Add(time.Hour), now.Add(time.Second), "401"); s.breaker.closed() {
		t.Error("a mark of another owner's later denial is not believed")
	}
}
