package deadletter

import (
	"testing"

	"github.com/nats-io/nats.go"
	"weir/ingest"
)

// TestEditKeepsTheKey checks that an edit cannot change the key in the place where the api's jobs name it.
func TestEditKeepsTheKey(t *testing.T) {
	t.Parallel()
	header, pointer := ingest.KeySource{Header: "X-Customer"}, ingest.KeySource{Pointer: "/customer"}
	for _, c := range []struct {
		what   string
		source ingest.KeySource
		edit   Edit
		ok     bool
	}{
		{"another key in a header", header, Edit{Set: map[string][]string{"x-customer": {"b"}}}, false},
		{"no key in a header", header, Edit{Unset: []string{"X-Customer"}}, false},
		{"the same key in a header", header, Edit{Set: map[string][]string{"x-customer": {"a"}}}, true},
		{"another key in the body", pointer, Edit{SetBody: true, Body: []byte(`{"customer":"b"}`)}, false},
		{"another body, the same key", pointer, Edit{SetBody: true, Body: []byte(`{"customer":"a","n":1}`)}, true},
		{"a key in the subject", ingest.KeySource{}, Edit{SetBody: true, Body: []byte(`{"customer":"b"}`)}, true},
	} {
		k := &Kept{Letter: Letter{
			API: "pay", Key: "a", JobID: "j", Reason: Rejected, Header: nats.Header{"X-Customer": {"a"}}, Body: []byte(`{"customer":"a"}`),
		}, Seq: 17}
		if err := c.edit.CheckKey(k, Terms{Key: c.source}); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
		if k.Key = ""; c.edit.CheckKey(k, Terms{Key: c.source}) != nil {
			t.Errorf("%s: a job without a key got none", c.what)
		}
	}
}
