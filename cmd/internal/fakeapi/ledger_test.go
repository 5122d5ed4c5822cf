package fakeapi_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	waits "weir/ingest/await"
)

// TestMain turns the test binary into a fake api process if the environment says so.
func TestMain(m *testing.M) {
	ledger := os.Getenv("FAKEAPI_LEDGER")
	if ledger == "" {
		os.Exit(m.Run())
	}
	err := fakeapi.Serve(context.Background(), fakeapi.Options{
		Ledger: ledger, Price: 7, KeepBody: 4, Key: fakeapi.KeyFrom{Segment: 1},
		Idempotency: fakeapi.Idempotency{Repeat: fakeapi.RepeatReplayed},
	})
	panic(err) // Serve runs until the process is killed
}

// process is a fake api that runs as a process of its own.
type process struct {
	url  string
	kill func()
}

func startProcess(t *testing.T, ledger string) process {
	t.Helper()
	cmd := exec.CommandContext(waits.Context(t, "a fake api in a process of its own"), os.Args[0])
	cmd.Env = append(os.Environ(), "FAKEAPI_LEDGER="+ledger)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = waits.Result(t, "the end of a killed fake api", cmd.Wait)
	})
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	url, found := strings.CutPrefix(strings.TrimSpace(line), "listening ")
	if err != nil || !found {
		t.Fatalf("announced %q, %v", line, err)
	}
	return process{url: url, kill: kill}
}

func TestLedgerSaysWhatMemorySays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	api := start(t, fakeapi.Options{Ledger: path, Price: 9, KeepBody: 100, Limit: fakeapi.VendorLimit{Count: 8, Per: time.Hour}})
	c := client(t)
	orders := []string{"", "status=500", "reset=header", "reset=body", "reset=answer", "close", "size=100000", "drip=1ms", "status=200", "", ""}
	for _, text := range orders {
		r := order(text)
		r.header["X-Odd"] = "qu\"ote \\ tab\t ümlaut"
		r.header["Idempotency-Key"] = text
		c.CloseIdleConnections()
		_, _, _ = do(t, c, api.URL(), r)
	}
	ended(t, api, int64(len(orders)))
	if err := api.Close(); err != nil {
		t.Fatal(err)
	}
	ledger, err := fakeapi.ReadLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := mustJSON(t, ledger.Arrivals), mustJSON(t, api.All()); got != want {
		t.Errorf("ledger %s\nmemory %s", got, want)
	}
	if !ledger.Started.Equal(api.Started()) || ledger.Runs != 1 || ledger.Torn != 0 {
		t.Errorf("started %v, memory %v, runs %d, torn %d", ledger.Started, api.Started(), ledger.Runs, ledger.Torn)
	}
	if counts := fakeapi.CountByEnding(ledger.Arrivals); counts[fakeapi.Limited] != 3 || counts[fakeapi.ResetBody] != 1 {
		t.Errorf("endings %v", counts)
	}
}

// TestKilledProcessLosesNothing checks the ledger after kill -9 at any moment: it has every call that a client saw
// answered, with its bill, and every call that was running.
func TestKilledProcessLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	var answered, last atomic.Int64
	for round := range 3 {
		p := startProcess(t, path)
		c := client(t)
		var group sync.WaitGroup
		held := make(chan struct{})
		group.Go(func() {
			defer close(held)
			_, _, _ = do(t, c, p.url, request{path: "/running?fake-delay=1h"})
		})
		var inRound atomic.Int64
		for range 4 {
			group.Go(func() {
				for {
					if _, _, err := do(t, c, p.url, request{path: "/k", body: "abcdef"}); err != nil {
						return
					}
					answered.Add(1)
					inRound.Add(1)
				}
			})
		}
		waitFor(t, func() bool {
			ledger, err := fakeapi.ReadLedger(path)
			return err == nil && len(fakeapi.OfKey(ledger.Arrivals, "running")) == round+1 && inRound.Load() > 50
		})
		p.kill()
		waits.Receive(t, "the held call to break", held)
		waits.Return(t, "the other calls to break", group.Wait)
		ledger, err := fakeapi.ReadLedger(path)
		if err != nil {
			t.Fatal(err)
		}
		invoice := fakeapi.Bills(ledger.Arrivals)
		if invoice.Calls < int(answered.Load()) || invoice.Charged != int64(invoice.Calls)*7 {
			t.Errorf("round %d: %d answered, invoice %+v", round, answered.Load(), invoice)
		}
		if ledger.Runs != round+1 || invoice.Unknown < round+1 || invoice.Unknown > 5*(round+1) {
			t.Errorf("round %d: runs %d, invoice %+v", round, ledger.Runs, invoice)
		}
		numbers := make(map[int64]bool)
		for _, a := range ledger.Arrivals {
			numbers[a.Number] = true
		}
		if len(numbers) != len(ledger.Arrivals) {
			t.Errorf("round %d: %d numbers for %d arrivals", round, len(numbers), len(ledger.Arrivals))
		}
		// Time continues across processes, and never goes back.
		latest := ledger.Arrivals[len(ledger.Arrivals)-1].At
		if latest <= last.Load() {
			t.Errorf("round %d: latest arrival at %d, of the last process at %d", round, latest, last.Load())
		}
		last.Store(latest)
	}
}

// waitFor polls until a condition is true.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	waits.Until(t, "the condition at the line above", holds)
}

func TestContinuedLedgerRemembersWhatWasBilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	opts := fakeapi.Options{
		Ledger: path, Price: 5, Idempotency: fakeapi.Idempotency{Repeat: fakeapi.RepeatReplayed},
		Limit: fakeapi.VendorLimit{Count: 3, Per: time.Hour},
	}
	first, err := fakeapi.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := charge(t, first, "job", "b", "status=201"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := charge(t, first, "failed", "b", "status=500"); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := start(t, opts)
	if res, body, err := charge(t, second, "job", "b", ""); err != nil || res.StatusCode != 201 || body != "{\"call\":1,\"status\":201}\n" {
		t.Errorf("repeat: %v %q %v", res, body, err)
	}
	if res, _, err := charge(t, second, "failed", "b", ""); err != nil || res.StatusCode != 429 {
		t.Errorf("the fourth call within the limit of three: %v %v", res, err)
	}
	if totals := second.Totals(); totals.Charged != 5 || totals.Arrivals != 4 || totals.Replayed != 1 {
		t.Errorf("totals %+v", totals)
	}
	if all := second.All(); len(all) != 4 || all[3].Number != 4 || all[2].At <= all[1].End {
		t.Errorf("arrivals %+v", all)
	}
}

func TestTornLedgers(t *testing.T) {
	whole := `{"e":"start","run":1,"wall":"2026-01-02T15:04:05Z","boot":"b","mono":1,"at":0}` + "\n" +
		`{"e":"arrival","n":1,"at":5,"method":"GET","path":"/","cost":1}` + "\n"
	tests := []struct {
		name, rest string
		torn       int
		err        string
	}{
		{"whole", "", 0, ""},
		{"broken at the end", `{"e":"answer","n":1,`, 1, ""},
		{"broken before a start", `{"e":"ans` + "\n" + `{"e":"start","run":2,"wall":"2026-01-02T15:04:05Z","boot":"","mono":0,"at":9}` + "\n", 1, ""},
		{"broken in the middle", `{"e":"ans` + "\n" + `{"e":"answer","n":1,"end":6,"ending":"answered","status":200}` + "\n", 0, "line 4"},
		{"an answer to nothing", `{"e":"answer","n":2,"end":6,"ending":"answered","status":200}` + "\n", 0, "line 3"},
		{"an arrival twice", `{"e":"arrival","n":1,"at":6,"method":"GET","path":"/","cost":1}` + "\n", 0, "line 3"},
		{"answered twice", strings.Repeat(`{"e":"answer","n":1,"end":6,"ending":"answered","status":200}`+"\n", 2), 0, "line 4"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger")
			if err := os.WriteFile(path, []byte(whole+tt.rest), 0o600); err != nil {
				t.Fatal(err)
			}
			ledger, err := fakeapi.ReadLedger(path)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if ledger.Torn != tt.torn || len(ledger.Arrivals) != 1 || ledger.Arrivals[0].Ending != fakeapi.Running {
				t.Errorf("read %+v", ledger)
			}
			// A torn ledger can be continued.
			api := start(t, fakeapi.Options{Ledger: path})
			must(t, client(t), api.URL(), request{path: "/"})
			if ledger, err := fakeapi.ReadLedger(path); err != nil || len(ledger.Arrivals) != 2 || ledger.Torn != tt.torn {
				t.Errorf("taken up: %+v, %v", ledger, err)
			}
		})
	}
}

// TestEndlessFileIsNoLedger checks that a file without an end and without line breaks is refused, in little memory.
func TestEndlessFileIsNoLedger(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	if _, err := fakeapi.Start(fakeapi.Options{Ledger: "/dev/full"}); err == nil || !strings.Contains(err.Error(), "not a ledger") {
		t.Errorf("error %v", err)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	out, in := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- fakeapi.Serve(ctx, fakeapi.Options{Announce: in}) }()
	line, err := bufio.NewReader(out).ReadString('\n')
	url, found := strings.CutPrefix(strings.TrimSpace(line), "listening http://")
	if err != nil || !found {
		t.Fatalf("announced %q, %v", line, err)
	}
	must(t, client(t), "http://"+url, request{path: "/"})
	cancel()
	if err := waits.Receive(t, "the end of the fake api", done); err != nil {
		t.Error(err)
	}
	if _, _, err := do(t, client(t), "http://"+url, request{path: "/"}); err == nil {
		t.Error("still listening")
	}
}
