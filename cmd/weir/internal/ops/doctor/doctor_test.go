package doctor

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/nats/connect"
)

// examine checks a configuration on this machine, without a server.
func examine(t *testing.T, s *environment.Settings, yaml string) []Finding {
	t.Helper()
	c, err := config.Parse([]byte(yaml), config.Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return Examine(t.Context(), Options{Settings: s, Config: c})
}

func (f Finding) says(grade Grade, text string) bool {
	return f.Grade == grade && strings.Contains(f.What+": "+f.Fix, text)
}

// TestChangedProfiles checks that a vendor is named if its profile is not that of the applied configuration, and only
// then.
func TestChangedProfiles(t *testing.T) {
	c, err := config.Parse([]byte("apis: {a: {url: 'https://a.example.com', vendor: stripe, bucket: {rate: 1/s, capacity: 1}}, "+
		"b: {url: 'https://b.example.com', vendor: github, bucket: {rate: 1/s, capacity: 1}}}"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := &examination{Options: Options{Config: c, Connection: &connect.Connection{}, Confirmed: map[string]string{"stripe": c.Vendors()["stripe"]}}}
	e.profiles()
	if len(e.findings) != 1 || !e.findings[0].says(Watch, "the profile of vendor github is of "+c.Vendors()["github"]) {
		t.Errorf("found %v", e.findings)
	}
}

// TestFindings checks that each problem is found with its fix, and that nothing else is. No api is called.
func TestFindings(t *testing.T) {
	calls := 0
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ })
	// The certificate of secured is from an unknown authority.
	plain, secured := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secured.Close()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // that is what is to be found
		t.Fatal(err)
	}
	authority := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secured.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &environment.Settings{DataDir: dir, Durability: environment.DurabilityInterval}
	found := examine(t, s, fmt.Sprintf(`
apis:
  good:
    url: %s
    price: 0.10
    jitter: 1s
    bucket: {rate: 1/s, capacity: 10, max_wait: 10m, in_flight: 1}
    limits: [{name: all, rate: 20/s}, {name: together, in_flight: 9}, {name: spend, budget: 20.00/day}]
  odd:
    url: %s
    price: 5.00
    jitter: 1s
    headers: {Authorization: "Bearer ${env:WEIR_TEST_NO_SUCH_SECRET}"}
    bucket: {rate: 1/min, capacity: 1000, max_wait: 10m, in_flight: 9}
    limits: [{name: all, rate: 1/h}, {name: together, in_flight: 3}, {name: spend, budget: 20.00/day}, {name: paced, rate: 1/h, per: replica}, {name: few, in_flight: 2, per: replica}]
  clear:
    url: https://%s/
    jitter: 1s
    bucket: {rate: 1/s, capacity: 10}
  named:
    url: %s
    jitter: 1s
    tls: {ca_file: %s}
    bucket: {rate: 1/s, capacity: 10}
  nobody:
    url: https://no-such-host.invalid
    jitter: 1s
    bucket: {rate: 1/s, capacity: 10}
`, plain.URL, secured.URL, plain.Listener.Addr(), strings.Replace(secured.URL, "127.0.0.1", "localhost", 1), authority))
	for text, grade := range map[string]Grade{
		"WEIR_DURABILITY is interval: a power cut may lose jobs accepted in the last second: set WEIR_DURABILITY=always": Watch,
		"other users of this machine may read the data directory " + dir + " (mode 755)":                                 Watch,
		"free on the disk of " + dir:    Fine,
		"this machine wakes a process":  Fine,
		"WEIR_TEST_NO_SUCH_SECRET":      Watch,
		"api odd: a full bucket takes ": Watch,
		"api odd: limit all lets ":      Watch,
		"api odd: limit together allows 3 calls in flight, fewer than the 9 of one key": Watch,
		"api odd: limit paced lets ": Watch,
		"api odd: limit few allows 2 calls in flight, fewer than the 9 of one key":                  Watch,
		"api odd: budget spend of 20.00 buys 4 calls: raise the budget":                             Watch,
		"api odd: no TLS with 127.0.0.1:":                                                           Bad,
		"name its CA by apis.odd.tls.ca_file":                                                       Bad,
		"begin apis.clear.url with http://":                                                         Bad,
		"name in apis.named.url the host that the certificate is for":                               Bad,
		"api nobody: the name no-such-host.invalid is not known here":                               Bad,
		"api good: " + strings.TrimPrefix(plain.URL, "http://") + " takes connections, without TLS": Fine,
		"to be on disk": Fine,
	} {
		if text == "to be on disk" { // depends on this machine's disk
			if !slices.ContainsFunc(found, func(f Finding) bool { return strings.Contains(f.What, text) }) {
				t.Error("no sync was timed")
			}
			continue
		}
		if !slices.ContainsFunc(found, func(f Finding) bool { return f.says(grade, text) }) {
			t.Errorf("%s: not found: %q in %+v", grade, text, found)
		}
	}
	for _, f := range found {
		if (f.Grade == Fine) != (f.Fix == "") || f.Grade != Fine && strings.Contains(f.What, "good") {
			t.Errorf("found: %+v", f)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v in the data directory (%v)", left, err)
	}
	if calls > 0 {
		t.Errorf("apis were called %d times", calls)
	}
}

// TestRedisThatIsNotThere checks that an unreachable Redis is a problem.
func TestRedisThatIsNotThere(t *testing.T) {
	t.Setenv("WEIR_REDIS_URL", "redis://:secret@127.0.0.1:1/0")
	t.Setenv("WEIR_DATA_DIR", filepath.Join(t.TempDir(), "none"))
	s, err := environment.Read()
	if err != nil {
		t.Fatal(err)
	}
	found := Examine(t.Context(), Options{Settings: s})
	if !slices.ContainsFunc(found, func(f Finding) bool { return f.says(Bad, "WEIR_REDIS_URL ") }) || strings.Contains(fmt.Sprint(found), "secret") {
		t.Errorf("found: %+v", found)
	}
	if !slices.ContainsFunc(found, func(f Finding) bool { return f.says(Watch, "there is no data directory ") }) {
		t.Errorf("found: %+v", found)
	}
}
