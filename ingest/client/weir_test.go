package client_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// paidAPI is the api behind the real weir that the tests and examples of this package run against. It answers with the
// path of the call. It answers a call of /held only when the test allows it.
var paidAPI = &heldAPI{began: make(chan struct{}, 100), free: make(chan struct{})}

type heldAPI struct{ began, free chan struct{} }

func (a *heldAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/held" {
		a.began <- struct{}{}
		select {
		case <-a.free:
		case <-r.Context().Done():
		}
	}
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprintf(w, "answer to %s, trace %s", r.URL.Path, r.Header.Get("traceparent"))
}

const configuration = `
apis:
  credit-check:
    url: %s
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 100000/s, capacity: 1000, in_flight: 8}
  tiny:
    url: %[1]s
    bucket: {rate: 1/h, capacity: 1}
`

// weirURL starts weir on the first call, and returns the address where it accepts jobs.
var weirURL = sync.OnceValue(startWeir)

// stopWeir stops what startWeir has started.
var stopWeir = func() {}

func startWeir() string {
	dir, err := os.MkdirTemp("", "weir-client-")
	check(err)
	api := httptest.NewServer(paidAPI)
	binary := filepath.Join(dir, "weir")
	building, cancel := context.WithTimeout(context.Background(), await.BuildPatience)
	defer cancel()
	if out, err := exec.CommandContext(building, "go", "build", "-trimpath", "-o", binary, "weir/cmd/weir").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v\n%s", err, out))
	}
	check(os.WriteFile(filepath.Join(dir, "weir.yaml"), fmt.Appendf(nil, configuration, api.URL), 0o600))
	cmd := exec.Command(binary, "serve")
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "WEIR_DATA_DIR=" + filepath.Join(dir, "data"), "WEIR_NATS_LISTEN=127.0.0.1:0", "WEIR_HTTP_LISTEN=",
	}
	said, err := cmd.StderrPipe()
	check(err)
	check(cmd.Start())
	stopWeir = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(await.Patience):
			_ = cmd.Process.Kill()
		}
		api.Close()
		_ = os.RemoveAll(dir)
	}
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if _, addr, ok := strings.Cut(lines.Text(), "what=nats addr="); ok {
			go io.Copy(io.Discard, said) //nolint:errcheck // it ends with the process
			url := "nats://" + strings.Fields(addr)[0]
			awaitIntake(url)
			return url
		}
		fmt.Fprintln(os.Stderr, lines.Text())
	}
	panic("weir did not start")
}

// awaitIntake waits until weir accepts jobs.
func awaitIntake(url string) {
	nc, err := nats.Connect(url, nats.Timeout(await.Patience))
	check(err)
	defer nc.Close()
	for until := time.Now().Add(await.Patience); ; {
		if _, err := nc.Request("$SRV.PING.weir", nil, time.Second); err == nil {
			return
		} else if time.Now().After(until) {
			panic("weir takes no jobs")
		}
		<-time.After(20 * time.Millisecond)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	stopWeir()
	os.Exit(code)
}

// patience is how long the examples wait.
func patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), await.Patience)
}

// since is a little before now, so that clocks that differ slightly do not matter.
func since() time.Time { return time.Now().Add(-time.Minute) }
