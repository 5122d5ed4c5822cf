package config

import (
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/secret"
	"weir/ingest"
)

func parseFile(t *testing.T, path string) *Config {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse(data, Options{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func template(t *testing.T, text string) secret.Template {
	t.Helper()
	parsed, err := secret.ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// TestContractExample checks every value of the example that documents the file format.
func TestContractExample(t *testing.T) {
	c := parseFile(t, "testdata/contract.yaml")
	pacific, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		t.Fatal(err)
	}
	five, fifty, one := int64(5000), bucket.Rate{Count: 50, Per: time.Second, Burst: 1}, bucket.Rate{Count: 1, Per: time.Second, Burst: 1}
	want := &Config{
		APIs: []API{{
			Name:    "credit-check",
			Weight:  1,
			URL:     &url.URL{Scheme: "https", Host: "api.example.com", Path: "/v2"},
			Methods: []string{"POST"},
			Headers: []Header{
				{"Authorization", template(t, "Bearer ${env:CREDIT_TOKEN}")},
				{"X-Client", template(t, "${file:/run/secrets/client}")},
			},
			ForwardHeaders: []string{"Content-Type", "X-Request-Source"},
			Timeout:        30 * time.Second,
			MaxBody:        256 << 10,
			Price:          400_000,
			Prices:         ingest.Units(400_000),
			Idempotency:    &Idempotency{Header: "Idempotency-Key"},
			Key:            KeySource{From: KeyFromSubject},
			Rules: bucket.Rules{
				Key: bucket.KeyLimits{
					Rate: bucket.Rate{Count: 10, Per: time.Second, Burst: 1}, Capacity: 500, MaxWait: 10 * time.Minute, InFlight: 4,
				},
				Overrides: []bucket.Override{
					{Pattern: "vip-1", Rate: &fifty, Capacity: &five},
					{Pattern: "test-*", Rate: &one},
				},
				Shared: []bucket.Limit{
					{Name: "account", Rate: &bucket.Rate{Count: 100, Per: time.Second, Burst: 10}},
					{Name: "daily", Quota: &bucket.Quota{Count: 50_000, Window: bucket.Calendar, Unit: bucket.Day, Zone: pacific}},
					{Name: "three-hours", Quota: &bucket.Quota{Count: 300, Window: bucket.Sliding, Per: 3 * time.Hour}},
					{
						Name: "tokens", Rate: &bucket.Rate{Count: 90_000, Per: time.Minute, Burst: 4000},
						Cost: ingest.FromHeader("Weir-Cost"),
					},
					{Name: "concurrent", InFlight: 50},
					{Name: "spend", Budget: &bucket.Budget{
						Quota:       bucket.Quota{Count: 200_000_000, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC},
						OnExhausted: bucket.Hold,
					}},
				},
				Admit: []bucket.Admission{{
					Rate:      bucket.Rate{Count: 1000, Per: time.Minute, Burst: 1000},
					Algorithm: bucket.SlidingWindowCounter, SoftPercent: 10,
				}},
				Weights: bucket.Weights{High: 16, Normal: 4, Low: 1},
				Jitter:  5 * time.Millisecond,
				Lease:   35*time.Second + 5*time.Millisecond,
			},
			Retry:   Retry{Attempts: 5, Min: time.Second, Max: 5 * time.Minute, On: []int{429, 503}, Hold: HoldAPI, Headers: ObeyHeaders},
			Breaker: Breaker{Failures: 5, Min: time.Second, Max: 5 * time.Minute},
		}},
		DeadLetters: DeadLetters{MaxAge: 30 * grammar.Day, MaxBytes: 10 << 30},
		Results:     Results{MaxAge: 24 * time.Hour, MaxBody: 64 << 10},
		Dedupe:      10 * time.Minute,
		File:        "testdata/contract.yaml",
	}
	want.text, want.notes, want.references = c.text, c.notes, c.references
	if !reflect.DeepEqual(c, want) {
		t.Errorf("the example is\n%+v\nwant\n%+v", c, want)
	}
	if len(c.Warnings) != 0 {
		t.Errorf("the example has warnings: %v", c.Warnings)
	}
}

// TestAPI checks that Config.API finds an api by its name.
func TestAPI(t *testing.T) {
	c := parseText(t, "apis: {sms: {url: 'http://127.0.0.1:9/', bucket: {rate: 1/s, capacity: 10}}}")
	if api, ok := c.API("sms"); !ok || api != &c.APIs[0] {
		t.Error("sms is not found")
	}
	if _, ok := c.API("mail"); ok {
		t.Error("mail is found")
	}
}

// TestReference checks that the file that documents every field is complete, and that the defaults in it are true. The
// example of the contract leaves the defaults out, and must mean the same. UPDATE_GOLDEN=1 appends the fields that the
// file lacks.
func TestReference(t *testing.T) {
	const file = "../../../../deploy/weir.reference.yaml"
	contract, reference := parseFile(t, "testdata/contract.yaml"), parseFile(t, file)
	for _, change := range contract.Diff(reference) {
		t.Error(change)
	}
	for _, w := range reference.Warnings {
		t.Error(w)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	shown, _, _ := strings.Cut(string(text), further)
	rest := ""
	for _, path := range fieldPaths(File()) {
		name := path[strings.LastIndex(path, ".")+1:]
		if !regexp.MustCompile(`(?m)(^|[ {])` + name + `:`).MatchString(shown) {
			rest += "# " + path + "\n"
		}
	}
	want := shown
	if rest != "" {
		want += further + rest
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("%s does not end with the fields that it does not show: make fields writes them\n%s", file, want[len(shown):])
	}
}

// fieldPaths returns the paths of all fields.
func fieldPaths(s field.Table) (paths []string) {
	for _, f := range s.Fields {
		paths = append(paths, strings.Trim(s.Path+"."+f.Name, "."))
		if f.Inner != nil {
			paths = append(paths, fieldPaths(*f.Inner)...)
		}
	}
	return paths
}

// further begins the list of fields that the file does not show where they belong.
const further = "\n# Further fields, which weir help fields explains:\n"
