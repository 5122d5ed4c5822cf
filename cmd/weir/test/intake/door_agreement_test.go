package intake

import (
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"

	"github.com/nats-io/nats.go"
)

// TestDoorAndSubjectAgree: the same job over NATS and over HTTP gets the same answer and the same letter, whatever is wrong with it.
func TestDoorAndSubjectAgree(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, weirtest.DoorYAML)
	addr := r.Worker.HTTPAddr()
	cases := map[string]struct {
		path, subject string
		header        nats.Header
		body          string
		status        int
	}{
		"good":                  {"credit/k", "credit.k", nats.Header{"Weir-Path": {"/x"}, "Weir-Cost": {"2"}}, "body", 202},
		"a key of three tokens": {"credit/a.b.c", "credit.a.b.c", nil, "body", 202},
		"a key of bytes":        {"credit/%2A%3E%20", "credit.%2A%3E%20", nil, "body", 202},
		"a key in a header":     {"tenants", "tenants", nats.Header{"X-Tenant": {"t1"}}, "body", 202},
		"two places of a key":   {"tenants/k", "tenants.k", nats.Header{"X-Tenant": {"t1"}}, "body", 400},
		"no key in a header":    {"tenants", "tenants", nil, "body", 400},
		"unknown api":           {"none/k", "none.k", nil, "body", 404},
		"no name of an api":     {"No%25/k", "No%.k", nil, "body", 404},
		"no key":                {"credit", "credit", nil, "body", 400},
		"key of 129 bytes":      {"credit/" + strings.Repeat("k", 129), "credit." + strings.Repeat("k", 129), nil, "body", 400},
		"key that is no UTF-8":  {"credit/%FF", "credit.%FF", nil, "body", 400},
		"body too large":        {"credit/k", "credit.k", nil, strings.Repeat("x", 101), 413},
		"headers too large":     {"credit/k", "credit.k", nats.Header{"Weir-Header-X-Source": {strings.Repeat("x", 40<<10)}}, "body", 400},
		"past deadline":         {"credit/k", "credit.k", nats.Header{"Weir-Deadline": {"2020-01-01T00:00:00Z"}}, "body", 400},
		"another stream":        {"credit/k", "credit.k", nats.Header{"Nats-Expected-Stream": {"ORDERS"}}, "body", 400},
		"two paths":             {"credit/k", "credit.k", nats.Header{"Weir-Path": {"/a", "/b"}}, "body", 400},
		"a redrive of a job":    {"credit/k", "credit.k", nats.Header{"Weir-Redrives": {"1"}, "Weir-Job-Id": {"x"}, "Nats-Msg-Id": {"x.r1"}}, "body", 400},
		"an id of a redrive":    {"credit/k", "credit.k", nats.Header{"Nats-Msg-Id": {"x.r1"}}, "body", 400},
		"no trace":              {"credit/l", "credit.l", nats.Header{"traceparent": {"nonsense"}}, "body", 202},
	}
	for name, value := range map[string]string{
		"Weir-Method": "GET", "Weir-Path": "/../x", "Weir-Query": "a#b", "Weir-Deadline": "soon", "Weir-Cost": "0", "Weir-Not-Before": "soon", "Weir-Priority": "urgent",
		"Nats-Msg-Id": "a b", "Weir-Header-X-Other": "1", "Weir-Unheard": "1", "Nats-Expected-Last-Sequence": "1", "Nats-Rollup": "sub",
		"Nats-Ttl": "1s", "Nats-Batch-Id": "1", "Nats-Schedule": "@every 1s", "Weir-Reply-To": "weir.jobs.credit.k", "Weir-Job-Id": "\x7f",
	} {
		c := cases["unknown api"]
		c.path, c.subject, c.header, c.status = "credit/k", "credit.k", nats.Header{name: {value}}, 400
		if name == "Weir-Job-Id" {
			c.header = nats.Header{name: {strings.Repeat("j", 256)}}
		}
		cases[name+" "+value] = c
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			over := post(t, addr, c.path, []byte(c.body), c.header)
			msg := &nats.Msg{Subject: "weir.jobs." + c.subject, Header: nats.Header{}, Data: []byte(c.body)}
			for name, values := range c.header {
				msg.Header[name] = values
			}
			reply, err := r.NC.RequestMsg(msg, weirtest.Patience)
			if err != nil {
				t.Fatal(err)
			}
			var on producer.Answer
			if err := json.Unmarshal(reply.Data, &on); err != nil {
				t.Fatal(err)
			}
			if over.status != c.status || (on.Error == nil) != (c.status == 202) {
				t.Fatalf("over HTTP %d %+v, on NATS %s, want %d", over.status, over, reply.Data, c.status)
			}
			if over.Stream != on.Stream || over.Key != on.Key || (over.Letter == 0) != (on.Letter == 0) {
				t.Errorf("over HTTP %+v, on NATS %+v", over, on)
			}
			if on.Error == nil {
				return
			}
			said := overHTTP(on.Error.Description)
			if over.Detail != said || over.ErrCode != on.Error.ErrCode || over.status != on.Error.Code || over.Title != http.StatusText(c.status) {
				t.Errorf("over HTTP %d %d %q %q, on NATS %+v", over.status, over.ErrCode, over.Title, over.Detail, on.Error)
			}
			if over.Letter == 0 {
				return
			}
			a, b := r.Store().LetterOf(t, over.Letter), r.Store().LetterOf(t, on.Letter)
			if detail, ok := b["Weir-Dead-Detail"]; ok {
				b["Weir-Dead-Detail"] = overHTTP(detail)
			}
			if !reflect.DeepEqual(a, b) {
				t.Errorf("the letter over HTTP is\n%v\non NATS\n%v", a, b)
			}
		})
	}
}

// overHTTP returns a refusal's description as an HTTP client gets it, with the address to post to.
func overHTTP(description string) string {
	return regexp.MustCompile(`publish to weir\.jobs\.(\S+)`).ReplaceAllStringFunc(description, func(text string) string {
		place := strings.ReplaceAll(strings.TrimPrefix(text, "publish to weir.jobs."), ".", "/")
		return "post to /v1/jobs/" + strings.ReplaceAll(place, "<key>", "{key}")
	})
}
