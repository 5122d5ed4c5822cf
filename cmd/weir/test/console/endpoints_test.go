package console

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// TestEndpointsDescribeThemselves: nats micro info shows what goes in and what comes back, and what comes back is that.
func TestEndpointsDescribeThemselves(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, "apis:\n  m:\n    url: %s\n    bucket: {rate: 1/h, capacity: 2}\n    limits: [{name: daily, quota: 1000/day}]\n")
	operator := r.Operators().Conn()
	ask := func(nc *nats.Conn, subject string) []byte {
		t.Helper()
		msg, err := nc.Request(subject, nil, weirtest.Patience)
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		if code := msg.Header.Get(micro.ErrorCodeHeader); code != "" && !strings.HasPrefix(subject, "weir.jobs.") {
			t.Fatalf("%s: %s", subject, msg.Header.Get(micro.ErrorHeader))
		}
		return msg.Data
	}
	schemas := map[string]map[string]string{} // metadata by service and endpoint
	for _, service := range []string{"weir", "weir-operator"} {
		var info micro.Info
		if err := json.Unmarshal(ask(operator, "$SRV.INFO."+service), &info); err != nil {
			t.Fatal(err)
		}
		if info.Metadata["weir.help"] == "" {
			t.Errorf("service %s says nothing of where to read on", service)
		}
		for _, e := range info.Endpoints {
			if e.Metadata["weir.subject"] == "" {
				t.Errorf("endpoint %s of %s says nothing of itself", e.Name, service)
			}
			schemas[service+"/"+e.Name] = e.Metadata
		}
	}
	r.Producer().Submit("weir.jobs.m.k", nil, nil) // is called at once, the next waits for an hour
	r.Store().Ended("m", "k", 1)
	holdsTo(t, "a receipt", schemas["weir/jobs"]["weir.schema.receipt"], ask(r.NC, "weir.jobs.m.k"))
	for subject, of := range map[string][2]string{
		"weir.operator.keys.m": {"keys", "weir.schema.response"}, "weir.operator.show.m.k": {"show", "weir.schema.response"},
		"weir.operator.status": {"status", "weir.schema.response"}, "weir.operator.config": {"config", "weir.schema.response"},
		"weir.operator.paused.m.k": {"paused", "weir.schema.response"}, "weir.operator.try.m": {"try", "weir.schema.response"},
	} {
		holdsTo(t, subject, schemas["weir-operator/"+of[0]][of[1]], ask(operator, subject))
	}
	ask(r.NC, "weir.jobs.m.k")
	holdsTo(t, "a refusal of a full bucket", schemas["weir/jobs"]["weir.schema.refusal"], ask(r.NC, "weir.jobs.m.k"))
	holdsTo(t, "a refusal", schemas["weir/jobs"]["weir.schema.refusal"], ask(r.NC, "weir.jobs.nobody.k"))
	if m := schemas["weir/jobs"]; m["weir.subject"] != "weir.jobs.<api>.<key>" || !strings.Contains(m["weir.headers"], "Weir-Not-Before") {
		t.Errorf("jobs say %v", m)
	}
}

// holdsTo compares an answer with the schema that its endpoint names: types, and members that are missing or not named.
func holdsTo(t *testing.T, what, schema string, answer []byte) {
	t.Helper()
	var of map[string]any
	var got any
	if err := json.Unmarshal([]byte(schema), &of); err != nil {
		t.Fatalf("%s: the schema %q: %v", what, schema, err)
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	compareSchema(t, what, of, got)
}

func compareSchema(t *testing.T, at string, of map[string]any, got any) {
	t.Helper()
	want, _ := of["type"].(string)
	switch v := got.(type) {
	case map[string]any:
		properties, _ := of["properties"].(map[string]any)
		rest, _ := of["additionalProperties"].(map[string]any)
		if want != "object" && want != "" {
			t.Errorf("%s is an object, not %s", at, want)
		}
		for name, value := range v {
			if p, ok := properties[name].(map[string]any); ok {
				compareSchema(t, at+"."+name, p, value)
			} else if rest != nil {
				compareSchema(t, at+"."+name, rest, value)
			} else if want != "" {
				t.Errorf("%s.%s is not in the schema", at, name)
			}
		}
		required, _ := of["required"].([]any)
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				t.Errorf("%s.%v is missing", at, name)
			}
		}
	case []any:
		items, _ := of["items"].(map[string]any)
		for _, one := range v {
			compareSchema(t, at+"[]", items, one)
		}
	case string:
		if want != "string" && want != "" {
			t.Errorf("%s is a text, not %s", at, want)
		}
	case float64:
		if !slices.Contains([]string{"integer", "number", ""}, want) {
			t.Errorf("%s is a number, not %s", at, want)
		}
	case bool:
		if want != "boolean" && want != "" {
			t.Errorf("%s is a truth, not %s", at, want)
		}
	}
}
