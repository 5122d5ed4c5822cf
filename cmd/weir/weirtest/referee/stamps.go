package referee

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
)

func Stamped(arrivals []fakeapi.Arrival) []bucket.Arrival {
	stamps := make([]bucket.Arrival, len(arrivals))
	for i, a := range arrivals {
		stamps[i] = bucket.Arrival{At: a.At, End: a.End}
	}
	return stamps
}

func StampsOf(arrivals []fakeapi.Arrival, keep func(at int64) bool) []bucket.Arrival {
	var stamps []bucket.Arrival
	for _, a := range arrivals {
		if keep(a.At) {
			stamps = append(stamps, bucket.Arrival{At: a.At, End: a.End})
		}
	}
	return stamps
}

func EverySecond(n int64) bucket.Limit {
	return bucket.Limit{Name: "rate", Rate: &bucket.Rate{Count: n, Per: time.Second, Burst: 1}}
}

func SharedRate(name string, count, burst int64) bucket.Limit {
	return bucket.Limit{Name: name, Rate: &bucket.Rate{Count: count, Per: time.Second, Burst: burst}}
}

var ThreeSeconds = bucket.Limit{Name: "three", Quota: &bucket.Quota{Count: 150, Window: bucket.Sliding, Per: 3 * time.Second}}

// RedisJitter is the jitter for a machine that runs a redis-server and many tests.
const RedisJitter = 20 * time.Millisecond

// CallsOf returns the calls that the api answered with this status.
func CallsOf(api *fakeapi.API, status int) []fakeapi.Arrival {
	prefix := fmt.Sprintf("/%d/", status)
	return slices.DeleteFunc(slices.Clone(api.All()), func(a fakeapi.Arrival) bool { return !strings.HasPrefix(a.Path, prefix) })
}

// CalledOnce checks that no job was called twice, and that at least least jobs were called.
func CalledOnce(t *testing.T, calls []fakeapi.Arrival, least int) {
	t.Helper()
	seen := map[string]int{}
	for _, call := range calls {
		seen[call.Path]++
	}
	for path, n := range seen {
		if n != 1 {
			t.Errorf("%s was called %d times", path, n)
		}
	}
	if len(seen) < least {
		t.Errorf("%d jobs were called, of %d that were taken", len(seen), least)
	}
}

// PerBody counts the api's calls by body.
func (f Referee) PerBody() map[string]int {
	calls := map[string]int{}
	for _, a := range f.API.All() {
		calls[string(a.Body)]++
	}
	return calls
}
