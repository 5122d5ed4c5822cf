package console

import (
	"strconv"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
)

// TestMetricsAndHealth: every series that dashboards rely on is there, no key is a label, and readiness is a write.
func TestMetricsAndHealth(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, "apis:\n  m:\n    url: %s\n    price: 0.25\n    bucket: {rate: 1/s, capacity: 2}\n")
	for range 6 {
		r.Producer().Submit("weir.jobs.m.secret-key", nil, nil)
	}
	r.AwaitCalls(2)
	r.Eventually("results", func() bool { return r.Store().Messages("WEIR_RESULTS") >= 2 })
	if got := r.HTTP().Get("/readyz"); !strings.HasPrefix(got, "200") {
		t.Errorf("/readyz: %s", got)
	}
	if got := r.HTTP().Get("/livez"); !strings.HasPrefix(got, "200") {
		t.Errorf("/livez: %s", got)
	}
	metrics := r.HTTP().Get("/metrics")
	for _, series := range []string{
		`weir_jobs_accepted_total{api="m"}`, `weir_jobs_throttled_total{api="m"}`, `weir_jobs_finished_total{api="m",outcome="done"}`,
		`weir_calls_total{api="m",outcome="done"}`, `weir_call_duration_seconds_count{api="m"}`, `weir_queue_wait_seconds_count{api="m"}`,
		`weir_dispatch_late_seconds_count{api="m"}`, `weir_slots_forfeited_total{api="m"}`, `weir_queued_jobs{api="m"}`, `weir_keys{api="m"}`,
		`weir_in_flight_calls{api="m"}`, `weir_held{api="m"}`, `weir_dead_letters_total{api="m",reason="overflow"}`, `weir_dead_letters_total{api="m",reason="unknown"} 0`, `weir_dead_letters_total{api="_",reason="invalid"} 0`,
		`weir_dead_letters_kept{api="m",reason="overflow"}`, `weir_dead_letter_oldest_age_seconds{api="m"}`, `weir_spend_total{api="m"}`,
		`weir_limiter_up 1`, `weir_queue_wait_seconds_bucket{api="m",le="0.003"}`, `weir_partitions_owned{api="m"} 4`, `weir_partitions{api="m"} 4`, `weir_build_info{`,
	} {
		if !strings.Contains(metrics, series) {
			t.Errorf("no series %s", series)
		}
	}
	if strings.Contains(metrics, "secret-key") {
		t.Error("a key is a label")
	}
}

// TestMetricsOfAFullHouse: when the room for letters is full, producers get 503, and the metrics show both.
func TestMetricsOfAFullHouse(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, "apis:\n  m:\n    url: %s\n    bucket: {rate: 1/h, capacity: 1}\ndead_letters: {max_bytes: 1MiB}\n")
	r.Producer().Submit("weir.jobs.m.k", nil, nil)
	r.AwaitCalls(1)
	r.Eventually("an empty bucket", func() bool { return r.Store().Depth("m", "k") == 0 })
	r.Producer().Submit("weir.jobs.m.k", nil, nil) // waits
	codes := map[int]int{}
	for body := make([]byte, 64<<10); codes[503] < 3; {
		a := r.Producer().Submit("weir.jobs.m.k", body, nil)
		if a.Error == nil || codes[429] > 100 {
			t.Fatalf("answered %+v after %v", a, codes)
		}
		codes[a.Error.Code]++
	}
	r.Producer().Submit("weir.jobs.nobody.k", nil, nil)
	metrics := r.HTTP().Get("/metrics")
	value := func(series string) float64 {
		_, after, found := strings.Cut(metrics, "\n"+series+" ")
		v, err := strconv.ParseFloat(strings.SplitN(after, "\n", 2)[0], 64)
		if !found || err != nil {
			t.Errorf("no series %s: %v", series, err)
		}
		return v
	}
	for series, want := range map[string]float64{
		`weir_jobs_refused_total{api="m",code="503"}`: 3, `weir_jobs_refused_total{api="m",code="429"}`: float64(codes[429]),
		`weir_jobs_throttled_total{api="m"}`: float64(codes[429]), `weir_jobs_refused_total{api="m",code="413"}`: 0,
		`weir_intake_duration_seconds_count{api="m"}`: float64(2 + codes[429] + 3), `weir_intake_duration_seconds_count{api="_"}`: 1,
	} {
		if got := value(series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	if full := value(`weir_stream_used_ratio{stream="WEIR_DEAD"}`); full < 0.9 || full > 1 {
		t.Errorf("the full stream of letters is %v full", full)
	}
	if used := value(`weir_store_used_ratio`); used <= 0 || used >= 1 {
		t.Errorf("the store is %v full", used)
	}
}
