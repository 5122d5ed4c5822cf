//go:build unix

package soak

import (
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
)

// TestCommandWaitsForAFrozenServer: a command that finds the server without a processor for four seconds does its work
// afterwards.
func TestCommandWaitsForAFrozenServer(t *testing.T) {
	t.Parallel()
	r := weirtest.NewKillRig(t, fakeapi.Options{}, "apis:\n  pay: {url: '%s', bucket: {rate: 10/s, capacity: 5}}\n")
	r.Proc.Signal(t, program.Freezes)
	thaw := time.AfterFunc(4*time.Second, func() { r.Proc.Signal(t, program.Thaws) })
	defer thaw.Stop()
	if got := program.Command(t, []string{"WEIR_NATS_URL=nats://" + r.Addr}, "status"); got.Code != 0 {
		t.Errorf("weir status ended with %+v", got)
	}
}

// TestCommandAsksASilentServerOnce: a command that has credentials of its own gives a server up that does not greet,
// and does not wait as long once more without the credentials.
func TestCommandAsksASilentServerOnce(t *testing.T) {
	t.Parallel()
	r := weirtest.NewKillRig(t, fakeapi.Options{}, "apis:\n  pay: {url: '%s', bucket: {rate: 10/s, capacity: 5}}\n")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	var asked atomic.Int32
	go func() {
		var open []net.Conn // the runtime closes a connection that is no longer referenced
		for {
			c, err := silent.Accept()
			if err != nil {
				for _, c := range open {
					_ = c.Close()
				}
				return
			}
			open = append(open, c)
			asked.Add(1)
		}
	}()
	env := append(slices.Clone(r.Env), "WEIR_NATS_LISTEN="+silent.Addr().String())
	got := program.Command(t, env, "status")
	if got.Code != cli.ExitUnreachable || asked.Load() != 1 {
		t.Errorf("weir status asked %d times and ended with %+v", asked.Load(), got)
	}
}
