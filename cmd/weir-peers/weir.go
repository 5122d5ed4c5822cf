//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"weir/cmd/internal/machine"
	"weir/cmd/internal/serving"
)

// weirAPIs has the apis of the measurements. weir calls the first two as fast as it can: idempotent recognises a
// repeated job by its key, and once does not, so each of its calls has an intent on disk. The jobs of waiting wait.
// weirPaced is an api for one rate. The calls at once are bounded for each key.
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

// startWeir starts a `weir serve` with its server inside, and returns when weir accepts jobs.
func startWeir(ctx context.Context, s *stage, durability string) (*serving.Worker, error) {
	text := weirAPIs
	for _, r := range s.o.Rates {
		text += strings.NewReplacer("RATE", fmt.Sprint(r)).Replace(weirPaced)
	}
	text = strings.NewReplacer("URL", s.judge.URL, "ID", durability, "IN_FLIGHT", fmt.Sprint(max(1, s.o.AtOnce/s.o.Keys)),
		"AT_ONCE", fmt.Sprint(s.o.AtOnce)).Replace(text)
	file := s.Path("weir-" + durability + ".yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write weir's configuration: %w", err)
	}
	w := &serving.Worker{
		Path: s.Weir, Dir: s.Dir, NATS: "127.0.0.1:0", HTTP: "127.0.0.1:0", Attributes: machine.ChildAttributes,
		Env: []string{
			"WEIR_CONFIG=" + file, "WEIR_DATA_DIR=" + s.Path("weir-"+durability), "WEIR_INSTANCE=peers-" + durability, "WEIR_DURABILITY=" + durability,
		},
		Fail: func(err error) { s.o.say("%v", err) }, // the round fails
	}
	s.Later(w.Stop)
	if err := w.Start(ctx); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, w.Tail())
	}
	return w, nil
}
