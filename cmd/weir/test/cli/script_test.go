package cli

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the command line as people do: every script in a directory of its own, with a fake paid api of its
// own, and, where it says serve, with a weir in a process of its own. Besides testscript's own commands a script has
//
//	serve [VARIABLE=VALUE] starts weir with the script's weir.yaml, in which $API is the api's address, and $NOON a time zone where it is noon
//	day                    waits for midnight where it is near: what was spent today is told of one day
//	nats [js]              starts a nats-server on which no weir ever ran, with JetStream or without
//	code N CMD ARGS        runs a command that must end with exit code N
//	signal STOP|CONT       stops the weir that was served last, or lets it go on
//	await REGEXP CMD ARGS  runs a command again and again until its stdout matches
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve": serveScript, "nats": natsScript, "code": codeScript, "await": awaitScript, "signal": signalScript, "publish": publishScript,
			"day": func(*testscript.TestScript, bool, []string) { machine.AwaitDay(weirtest.Patience) },
		},
		Setup: func(env *testscript.Env) error {
			api, err := fakeapi.Start(fakeapi.Options{KeepBody: 1 << 10})
			if err != nil {
				return err
			}
			env.Defer(func() { _ = api.Close() })
			env.Setenv("API", api.URL())
			env.Setenv("NOON", machine.Noon())
			env.Values["served"] = new(*exec.Cmd)
			env.Setenv("WEIR_NATS_URL", "nats://127.0.0.1:1") // nothing listens before serve
			return nil
		},
		RequireExplicitExec: true,
	})
}

func serveScript(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: serve [VARIABLE=VALUE]")
	}
	yaml := strings.NewReplacer("$API", ts.Getenv("API"), "$NOON", ts.Getenv("NOON")).Replace(ts.ReadFile("weir.yaml"))
	ts.Check(os.WriteFile(ts.MkAbs("weir.yaml"), []byte(yaml), 0o600))
	cmd := exec.Command(os.Args[0], "serve")
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append([]string{
		"WEIR_TEST_AS_WEIR=1", "WEIR_NATS_LISTEN=127.0.0.1:0", "WEIR_HTTP_LISTEN=127.0.0.1:0", "WEIR_PARTITIONS=2",
		"WEIR_DURABILITY=interval", "WEIR_SHUTDOWN_TIMEOUT=100ms", "HOME=" + ts.MkAbs("."),
	}, args...)
	stderr, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	*ts.Value("served").(**exec.Cmd) = cmd
	stop := func() {
		_ = cmd.Process.Signal(program.Thaws) // it may have ended
		_ = cmd.Process.Signal(syscall.SIGTERM)
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(weirtest.Patience):
			_ = cmd.Process.Kill()
			ts.Fatalf("weir serve does not end when it is told to")
		}
	}
	ts.Defer(stop)
	late := time.AfterFunc(weirtest.Patience, func() { _ = cmd.Process.Kill() }) // ends the scan below
	defer late.Stop()
	lines := bufio.NewScanner(stderr)
	log, listening := "", regexp.MustCompile(`msg=listening what=nats addr=(\S+)`)
	for lines.Scan() {
		log += lines.Text() + "\n"
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			ts.Setenv("WEIR_NATS_URL", "nats://"+m[1])
		}
		if strings.Contains(lines.Text(), "msg=ready") {
			go func() { _, _ = io.Copy(io.Discard, stderr) }()
			return
		}
	}
	ts.Fatalf("weir serve did not come up:\n%s", log)
}

func signalScript(ts *testscript.TestScript, neg bool, args []string) {
	which, ok := map[string]os.Signal{"STOP": program.Freezes, "CONT": program.Thaws}[strings.Join(args, " ")]
	if neg || !ok {
		ts.Fatalf("usage: signal STOP|CONT")
	}
	ts.Check((*ts.Value("served").(**exec.Cmd)).Process.Signal(which))
}

func natsScript(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: nats [js]")
	}
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: len(args) == 1, StoreDir: ts.MkAbs("nats"),
		JetStreamMaxStore: 100 << 30, // otherwise this disk's free space bounds the streams
	})
	ts.Check(err)
	ns.Start()
	ts.Defer(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(weirtest.Patience) {
		ts.Fatalf("the nats-server did not start")
	}
	ts.Setenv("WEIR_NATS_URL", ns.ClientURL())
}

// publishScript publishes a job as any NATS client does, including jobs that weir submit would not send.
func publishScript(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: publish SUBJECT HEADER...")
	}
	nc, err := nats.Connect(ts.Getenv("WEIR_NATS_URL"), nats.Timeout(await.Patience))
	ts.Check(err)
	defer nc.Close()
	m := nats.NewMsg(args[0])
	for _, header := range args[1:] {
		name, value, _ := strings.Cut(header, ": ")
		m.Header.Set(name, value)
	}
	_, err = nc.RequestMsg(m, weirtest.Patience)
	ts.Check(err)
}

func codeScript(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N CMD ARGS")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := program.ExitCode(ts.Exec(args[1], args[2:]...)); got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func awaitScript(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await REGEXP CMD ARGS")
	}
	want := regexp.MustCompile(`(?m)` + args[0])
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(weirtest.Patience); ; {
		_ = ts.Exec(args[1], args[2:]...) // it may fail for a while
		if want.MatchString(ts.ReadFile("stdout")) {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			ts.Fatalf("no match for %q within %s", args[0], weirtest.Patience)
		}
	}
}
