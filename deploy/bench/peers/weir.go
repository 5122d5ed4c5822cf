//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

// weirAPIs are called as fast as weir can: one that knows a job by its key, and one that does not, whose every call has an intent on disk.
// Then one whose jobs wait, and those whose rates are measured. Calls at once are bounded by key, as the keys are known.
const weirAPIs = `apis:
  idempotent:
    url: URL/weir-idempotent-ID
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 100000/s, capacity: 1000000, in_flight: IN_FLIGHT}
  once:
    url: URL/weir-once-ID
    bucket: {rate: 100000/s, capacity: 1000000, in_flight: IN_FLIGHT}
  waiting:
    url: URL/waiting
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 1/24h, capacity: 10000000}
`

const weirPaced = `  paced-RATE:
    url: URL/weir-rate-RATE
    idempotency: {header: Idempotency-Key}
    bucket: {rate: RATE/s, capacity: 1000000, in_flight: AT_ONCE}
`

// weirServer is a `weir serve` with its server inside.
type weirServer struct {
	process *process
	nats    string // its address for producers
}

// startWeir starts one and returns when it takes jobs.
func startWeir(ctx context.Context, s *stage, id, durability string) (w weirServer, err error) {
	text := weirAPIs
	for _, r := range s.o.Rates {
		text += strings.NewReplacer("RATE", fmt.Sprint(r)).Replace(weirPaced)
	}
	text = strings.NewReplacer("URL", s.judge.url, "ID", id, "IN_FLIGHT", fmt.Sprint(max(1, s.o.AtOnce/s.o.Keys)),
		"AT_ONCE", fmt.Sprint(s.o.AtOnce)).Replace(text)
	file := s.path("weir-" + id + ".yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return w, fmt.Errorf("write weir's configuration: %w", err)
	}
	w.process, err = s.start(command{
		name: "weir", path: s.weir, args: []string{"serve"}, dir: s.dir,
		env: []string{
			"WEIR_CONFIG=" + file, "WEIR_DATA_DIR=" + s.path("weir-"+id), "WEIR_INSTANCE=peers-" + id, "WEIR_DURABILITY=" + durability,
			"WEIR_NATS_LISTEN=127.0.0.1:0", "WEIR_HTTP_LISTEN=127.0.0.1:0",
		},
	})
	if err != nil {
		return w, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startWithin, fmt.Errorf("weir did not come up within %v", startWithin))
	defer cancel()
	seen := map[string]string{}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, line := range strings.Split(w.process.tail.String(), "\n") {
			if !strings.Contains(line, "msg=listening") {
				continue
			}
			what, addr := "", ""
			for field := range strings.FieldsSeq(line) {
				switch name, value, _ := strings.Cut(field, "="); name {
				case "what":
					what = value
				case "addr":
					addr = value
				}
			}
			seen[what] = addr
		}
		if seen["nats"] != "" && ready(ctx, seen["http"]) {
			w.nats = "nats://" + seen["nats"]
			return w, nil
		}
		select {
		case <-tick.C:
		case <-w.process.exited:
			return w, fmt.Errorf("weir ended: %s\n%s", w.process.cmd.ProcessState, w.process.tail.String())
		case <-ctx.Done():
			return w, fmt.Errorf("%w\n%s", context.Cause(ctx), w.process.tail.String())
		}
	}
}

func ready(ctx context.Context, addr string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}
