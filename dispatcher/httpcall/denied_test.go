package httpcall

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestDenialTells checks that a denial says what to mend, and nothing that could be a secret.
func TestDenialTells(t *testing.T) {
	api := &API{Name: "pay", Credentials: []string{"Authorization", "X-Client"}, Secrets: func() []string { return []string{"Its-Secret"} }}
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
		{302, "https://its-secret.example/", "mend url of api pay"},
		{305, "", "mend url of api pay"},
	} {
		h := http.Header{}
		if c.location != "" {
			h.Set("Location", c.location)
		}
		out := Judge(api, Response{Sent: true, Status: c.status, Header: h}, time.Now())
		for _, word := range []string{c.want, "weir resume pay", "retry.reject"} {
			if !strings.Contains(out.Mend, word) {
				t.Errorf("%d %q does not say %q: %s", c.status, c.location, word, out.Mend)
			}
		}
		if text := out.Detail + out.Mend; strings.Contains(text, "secret") || out.Verdict != Denied {
			t.Errorf("%d %q: verdict %d, %s", c.status, c.location, out.Verdict, text)
		}
	}
	out := Judge(&API{Name: "pay"}, Response{Sent: true, Status: 401, Header: http.Header{}}, time.Now())
	if !strings.Contains(out.Mend, "add its credentials under headers") {
		t.Errorf("an api without credentials: %s", out.Mend)
	}
}

// TestDenialWaits checks that a denial lasts longer if the api asks for it, and never because of a window that
// is not used up.
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
		out := Judge(&API{}, Response{Sent: true, Status: 403, Header: h}, time.Now())
		if out.Hold.Wait != c.want || out.Hold.Spent {
			t.Errorf("%s: %s waits %v", c.name, c.value, out.Hold.Wait)
		}
		if told := strings.Contains(out.Detail, "its header "+strings.ToLower(c.name)); told != (c.want > 0) {
			t.Errorf("%s: %s is told as %s", c.name, c.value, out.Detail)
		}
	}
}
