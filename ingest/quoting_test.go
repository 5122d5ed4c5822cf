package ingest

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestRefusalsQuoteNoValue checks that the description of a refusal names headers and places in the body, but quotes no
// value, because viewers read it in letters and events.
func TestRefusalsQuoteNoValue(t *testing.T) {
	now := time.Date(2031, 1, 2, 15, 4, 5, 0, time.UTC)
	rule := &Rule{
		API: "pay", Methods: []string{"POST"}, MaxBody: 1000, ForwardHeaders: []string{"Content-Type", "X-Ok"},
		Costs: []CostBound{{Limit: "tokens", From: FromPointer("/tokens"), Most: 10}, {Limit: "weight", From: FromHeader(HeaderCost), Most: 10}},
	}
	secrets := []string{"s3cr3t", "987654", "2029-", "2039-"}
	for _, c := range []struct{ name, value, body string }{
		{name: HeaderMethod, value: "S3CR3T"},
		{name: HeaderMethod, value: "s3cr3t"},
		{name: HeaderCost, value: "s3cr3t"},
		{name: HeaderCost, value: "-987654"},
		{name: HeaderCost, value: "987654"},
		{name: HeaderDeadline, value: "s3cr3t"},
		{name: HeaderDeadline, value: "2029-01-01T00:00:00Z"},
		{name: HeaderNotBefore, value: "s3cr3t"},
		{name: HeaderNotBefore, value: "-987654s"},
		{name: HeaderNotBefore, value: "2039-01-01T00:00:00Z"},
		{name: HeaderReplyTo, value: "s3cr3t"},
		{name: HeaderReplyTo, value: "$SYS.s3cr3t"},
		{name: HeaderReplyTo, value: "a..s3cr3t"},
		{name: HeaderPath, value: "/../s3cr3t\x01"},
		{name: HeaderPath, value: "s3cr3t"},
		{name: HeaderPath, value: "/s3cr3t?x"},
		{name: HeaderQuery, value: "s3cr3t\x01#"},
		{name: HeaderJobID, value: "s3cr3t s3cr3t"},
		{name: HeaderMsgID, value: strings.Repeat("s3cr3t", 100)},
		{name: "Weir-Header-X-Other", value: "s3cr3t"},
		{name: "Weir-Header-X-Ok", value: "s3cr3t\r\nX: y"},
		{name: "Nats-Rollup", value: "s3cr3t"},
		{name: "Nats-TTL", value: "s3cr3t"},
		{name: HeaderRedrives, value: "s3cr3t"},
		{body: `{"tokens": 987654}`},
		{body: `{"tokens": -987654}`},
		{body: `{"tokens": "s3cr3t"}`},
		{body: `s3cr3t`},
		{body: `{"s3cr3t": 1}`},
		{body: `{"tokens": 987654987654987654987654}`},
	} {
		m := Message{Key: "k", Header: nats.Header{}, Body: []byte(`{"tokens": 1}`)}
		if c.name != "" {
			m.Header[c.name] = []string{c.value}
		}
		if c.body != "" {
			m.Body = []byte(c.body)
		}
		_, refusal := Parse(m, rule, now)
		if refusal == nil {
			t.Errorf("%s %q %s is taken", c.name, c.value, c.body)
			continue
		}
		for _, secret := range secrets {
			if strings.Contains(strings.ToLower(refusal.Description), secret) {
				t.Errorf("%s %q %s: %s", c.name, c.value, c.body, refusal.Description)
			}
		}
	}
}
