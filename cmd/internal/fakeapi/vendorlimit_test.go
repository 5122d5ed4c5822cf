package fakeapi_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	waits "weir/ingest/await"
)

func TestVendorLimit(t *testing.T) {
	tests := []struct {
		name   string
		limit  fakeapi.VendorLimit
		passes map[string]int // of 5 calls to each key
	}{
		{"each key", fakeapi.VendorLimit{Count: 3, Per: time.Hour}, map[string]int{"/a": 3, "/b": 3}},
		{"all keys", fakeapi.VendorLimit{Count: 3, Per: time.Hour, Scope: fakeapi.AllKeys}, map[string]int{"/a": 3, "/b": 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			api := start(t, fakeapi.Options{Limit: tt.limit, Price: 1, Key: fakeapi.KeyFrom{Segment: 1}})
			c := client(t)
			var want int64
			for _, path := range []string{"/a", "/b"} {
				for i := range 5 {
					res, _ := must(t, c, api.URL(), request{path: path, header: map[string]string{fakeapi.OrderHeader: "status=200"}})
					if passes := i < tt.passes[path]; (res.StatusCode == 200) != passes {
						t.Errorf("call %d of %s: %d", i, path, res.StatusCode)
					}
				}
				want += int64(tt.passes[path])
			}
			if totals := api.Totals(); totals.Arrivals != 10 || totals.Billed != want || totals.Limited != 10-want || totals.ByStatus[429] != 10-want {
				t.Errorf("totals %+v", totals)
			}
		})
	}
}

func TestVendorLimitSaysWhenToComeAgain(t *testing.T) {
	for _, form := range []fakeapi.RetryAfterForm{fakeapi.Seconds, fakeapi.HTTPDate, fakeapi.Absent} {
		t.Run("form "+string(form), func(t *testing.T) {
			api := start(t, fakeapi.Options{Limit: fakeapi.VendorLimit{Count: 1, Per: time.Minute, Form: form}})
			c := client(t)
			must(t, c, api.URL(), request{path: "/"})
			res, _ := must(t, c, api.URL(), request{path: "/"})
			value := res.Header.Get("Retry-After")
			var wait time.Duration
			switch form {
			case fakeapi.Seconds:
				seconds, err := strconv.Atoi(value)
				if err != nil {
					t.Fatal(err)
				}
				wait = time.Duration(seconds) * time.Second
			case fakeapi.HTTPDate:
				date, err := http.ParseTime(value)
				if err != nil {
					t.Fatal(err)
				}
				wait = time.Until(date)
			default:
				if value != "" {
					t.Errorf("Retry-After %q", value)
				}
				return
			}
			if wait < 40*time.Second || wait > 61*time.Second {
				t.Errorf("Retry-After %q is in %v", value, wait)
			}
		})
	}
}

// TestVendorLimitHoldsInEveryWindow checks that no window has more calls than the limit allows, however fast they come,
// and that a caller that keeps trying is let through again.
func TestVendorLimitHoldsInEveryWindow(t *testing.T) {
	limit := fakeapi.VendorLimit{Count: 7, Per: 40 * time.Millisecond}
	api := start(t, fakeapi.Options{Limit: limit})
	c := client(t)
	for limit := time.Now().Add(waits.Patience); api.Totals().ByStatus[200] < 50 || api.Totals().ByStatus[429] == 0; {
		if time.Now().After(limit) {
			t.Fatalf("waited %s in vain for 50 calls to be let in: %+v", waits.Patience, api.Totals())
		}
		must(t, c, api.URL(), request{path: "/"})
	}
	var passed []fakeapi.Arrival
	for _, a := range api.All() {
		if a.Status == 200 {
			passed = append(passed, a)
		}
	}
	if full := fakeapi.FullestByCount(passed, limit.Per); full.Count != limit.Count {
		t.Errorf("fullest window %+v", full)
	}
}
