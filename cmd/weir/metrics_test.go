package main

import (
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/deadletter"
	"weir/dispatcher"
	"weir/dispatcher/ledger"
)

// TestMetricsAndHealth: every series that dashboards rely on is there, no key is a label, and readiness is a write.
func TestMetricsAndHealth(t *testing.T) {
	r := newRig(t, fakeapi.Options{}, "apis:\n  m:\n    url: %s\n    price: 0.25\n    bucket: {rate: 100/s, capacity: 2}\n")
	for range 6 {
		r.submit("weir.jobs.m.secret-key", nil, nil)
	}
	r.awaitCalls(2)
	r.eventually("results", func() bool { return r.messages("WEIR_RESULTS") >= 2 })
	if got := r.get("/readyz"); !strings.HasPrefix(got, "200") {
		t.Errorf("/readyz: %s", got)
	}
	if got := r.get("/livez"); !strings.HasPrefix(got, "200") {
		t.Errorf("/livez: %s", got)
	}
	metrics := r.get("/metrics")
	for _, series := range []string{
		`weir_jobs_accepted_total{api="m"}`, `weir_jobs_throttled_total{api="m"}`, `weir_jobs_finished_total{api="m",outcome="done"}`,
		`weir_calls_total{api="m",outcome="done"}`, `weir_call_duration_seconds_count{api="m"}`, `weir_queue_wait_seconds_count{api="m"}`,
		`weir_dispatch_late_seconds_count{api="m"}`, `weir_slots_forfeited_total{api="m"}`, `weir_queued_jobs{api="m"}`, `weir_keys{api="m"}`,
		`weir_in_flight_calls{api="m"}`, `weir_held{api="m"}`, `weir_dead_letters_total{api="m",reason="overflow"}`, `weir_dead_letters_total{api="m",reason="unknown"} 0`, `weir_dead_letters_total{api="_",reason="invalid"} 0`,
		`weir_dead_letters{api="m",reason="overflow"}`, `weir_dead_letter_oldest_age_seconds{api="m"}`, `weir_spend_total{api="m"}`,
		`weir_limiter_up 1`, `weir_queue_wait_seconds_bucket{api="m",le="0.003"}`, `weir_partitions_owned{api="m"} 4`, `weir_build_info{`,
	} {
		if !strings.Contains(metrics, series) {
			t.Errorf("no series %s", series)
		}
	}
	if strings.Contains(metrics, "secret-key") {
		t.Error("a key is a label")
	}
}

// TestMetricsAreDocumented: README names every metric that weir has, and what stands in the labels of a closed set.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	metric := regexp.MustCompile(`(?s)(?:Name: *|counter\(|histogram\(|NewDesc\()"(weir_[a-z_]+)"`)
	found := 0
	err = filepath.WalkDir(filepath.Join("..", ".."), func(file string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || strings.Contains(file, "weir-torture") {
			return err
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, m := range metric.FindAllSubmatch(source, -1) {
			if found++; !strings.Contains(string(text), "`"+string(m[1])+"`") {
				t.Errorf("README does not name %s (%s)", m[1], file)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 24 {
		t.Errorf("only %d metrics were found in the source", found)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			rows[strings.TrimSpace(cells[1])] = append(rows[strings.TrimSpace(cells[1])], cells[3])
		}
	}
	outcomes := []string{ledger.Done, dispatcher.Twin, dispatcher.Deleted}
	for _, reason := range deadletter.Reasons() {
		if reason != deadletter.Overflow { // a job that overflows was never queued
			outcomes = append(outcomes, string(reason))
		}
	}
	for metric, values := range map[string][]string{"`weir_jobs_finished_total`": outcomes, "`weir_calls_total`": {ledger.Done, "retry", ledger.PushedBack}} {
		for _, value := range values {
			if len(rows[metric]) != 1 || !strings.Contains(rows[metric][0], "`"+value+"`") {
				t.Errorf("README's row of %s does not name %s", metric, value)
			}
		}
	}
}

// get fetches a path of the worker's HTTP side: its status, and its body.
func (r *rig) get(path string) string {
	r.t.Helper()
	client := http.Client{Timeout: patience}
	res, err := client.Get("http://" + r.worker.HTTPAddr() + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.Status + "\n" + string(body)
}
