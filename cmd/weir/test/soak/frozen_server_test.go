//go:build unix

package soak

import (
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
)

// TestCommandWaitsForAFrozenServer: a command that finds the server without a processor for four seconds does its work
// afterwards.
func TestCommandWaitsForAFrozenServer(t *testing.T) {
	t.Parallel()
	r := weirtest.NewKillRig(t, fakeapi.Options{}, "apis:\n  pay: {url: '%s', bucket: {rate: 10/s, capacity: 5}}\n")
	r.Proc.Signal(t, weirtest.Freezes)
	thaw := time.AfterFunc(4*time.Second, func() { r.Proc.Signal(t, weirtest.Thaws) })
	defer thaw.Stop()
	if got := weirtest.Command(t, []string{"WEIR_NATS_URL=nats://" + r.Addr}, "status"); got.Code != 0 {
		t.Errorf("weir status ended with %+v", got)
	}
}
