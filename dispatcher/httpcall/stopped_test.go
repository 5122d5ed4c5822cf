package httpcall

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/ingest"
	"weir/ingest/await"
)

// stoppedCalls is how many calls run while their process is stopped.
const stoppedCalls = 32

// TestStoppedProcessJudgesByTheAnswer checks that a process that was stopped beyond its calls' timeout accepts
// the answers that came meanwhile.
func TestStoppedProcessJudgesByTheAnswer(t *testing.T) {
	if to := os.Getenv("WEIR_TEST_CALLS"); to != "" {
		callAll(t, to)
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	child := exec.CommandContext(await.Context(t, "the process"), os.Args[0], "-test.run=^TestStoppedProcessJudgesByTheAnswer$")
	child.Env = append(os.Environ(), "WEIR_TEST_CALLS="+listener.Addr().String())
	var said bytes.Buffer
	child.Stdout, child.Stderr = &said, &said
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	for range stoppedCalls {
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, conn := range conns {
		say(conn, answerOK)
	}
	<-time.After(stoppedTimeout + time.Second)
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := await.Result(t, "the end of the process", child.Wait); err != nil {
		t.Errorf("the calls of a process that was stopped: %v\n%s", err, said.String())
	}
}

// stoppedTimeout is the timeout of each of them: all must have been sent, and the process stopped, before the first is
// over.
const stoppedTimeout = 4 * time.Second

// callAll makes the calls, all at once, in the process that is stopped.
func callAll(t *testing.T, to string) {
	t.Helper()
	var calls sync.WaitGroup
	for range stoppedCalls {
		c := callerOf(t, "http://"+to)
		c.API.Timeout = stoppedTimeout
		calls.Go(func() {
			if r := c.claimed(t, &ingest.Job{Method: "POST"}); r.Status != 200 || r.Cut {
				t.Errorf("%+v", r)
			}
		})
	}
	await.Return(t, "the calls", calls.Wait)
}
