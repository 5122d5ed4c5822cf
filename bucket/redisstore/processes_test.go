package redisstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"weir/bucket"
	"weir/ingest/await"
)

// asCaller is the variable that makes this test binary one of several processes that call under the same limits. Its
// value is the address of Redis.
const asCaller = "WEIR_TEST_CALL_WITH_REDIS"

const callerKeys = 6

// callerRules returns rules under which the account's rate binds. The other limits nearly bind.
func callerRules() bucket.Rules {
	return bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 40, Per: time.Second, Burst: 2}},
		Jitter: 20 * time.Millisecond, // the machine also runs other things
		Lease:  5 * time.Second,       // a process held up for longer would call beside the others
		Shared: []bucket.Limit{
			{Name: "account", Rate: &bucket.Rate{Count: 150, Per: time.Second, Burst: 5}},
			{Name: "sliding", Quota: &bucket.Quota{Count: 310, Window: bucket.Sliding, Per: 2 * time.Second}},
			{Name: "concurrent", InFlight: 4},
		},
	}
}

// TestThreeProcessesKeepEveryLimit lets three processes call at once. One is killed, and another replaces it. The test
// checks the times of all calls, merged, against every limit, and that nearly all of the rate is used. It does not
// check the latter on a machine that misses every twentieth slot.
func TestThreeProcessesKeepEveryLimit(t *testing.T) {
	s := startServer(t)
	if _, err := newReplicaOfCallers(t, s).Touch(context.Background()); err != nil {
		t.Fatal(err)
	}
	var callers []*caller
	for i := range 3 {
		callers = append(callers, startCaller(t, s, i))
	}
	for _, c := range callers {
		c.await(t, 80)
	}
	callers[2].kill(t)
	callers = append(callers, startCaller(t, s, 3))
	for _, c := range []*caller{callers[0], callers[1], callers[3]} {
		c.await(t, c.count()+60)
	}
	for _, c := range callers {
		c.kill(t)
	}

	var all []bucket.Arrival
	keys := map[string][]bucket.Arrival{}
	missed := 0
	for i, c := range callers {
		missed += c.missed
		t.Logf("process %d: %d calls, %d slots missed", i, len(c.calls), c.missed)
		for _, x := range c.calls {
			a := bucket.Arrival{At: x.at, End: x.end}
			if a.End == 0 {
				a.End = c.killed // a dead process has no call under way
			}
			all = append(all, a)
			keys[x.key] = append(keys[x.key], a)
		}
	}
	rules := callerRules()
	for _, l := range rules.Shared {
		v := bucket.Check(all, bucket.Expectation{Limit: l, Jitter: rules.Jitter})
		t.Logf("%s: %s", l.Name, v)
		if v.Outcome != bucket.Pass {
			t.Errorf("%s: %s", l.Name, v)
		}
	}
	for key, a := range keys {
		if v := bucket.Check(a, bucket.Expectation{Limit: bucket.Limit{Rate: &rules.Key.Rate}, Jitter: rules.Jitter}); v.Outcome != bucket.Pass {
			t.Errorf("%s: %s", key, v)
		}
	}
	if used := bestSecond(all, rules.Interval(*rules.Shared[0].Rate), rules.Shared[0].Rate.Burst); used < 0.9 {
		t.Errorf("at best %.1f %% of the shared rate was used while three processes had calls to make", 100*used)
	} else {
		t.Logf("at best %.1f %% of the shared rate was used", 100*used)
	}
}

func newReplicaOfCallers(t *testing.T, s *server) *Store {
	t.Helper()
	st, err := New(context.Background(), Options{Client: s.client(), API: "shared", Rules: callerRules(), Epoch: Fresh})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// bestSecond returns the part of a rate that was used in the best second. In the other seconds the machine was busy.
func bestSecond(arrivals []bucket.Arrival, t bucket.Interval, burst int64) float64 {
	v := bucket.Check(arrivals, bucket.Expectation{Limit: bucket.Limit{Quota: &bucket.Quota{Count: 1 << 40, Window: bucket.Sliding, Per: time.Second}}})
	return float64(v.Worst-burst) / t.PerSecond()
}

// caller is a process that calls, and what its output has reported.
type caller struct {
	cmd    *exec.Cmd
	done   chan struct{} // closed when all it wrote is read
	killed int64

	mu     sync.Mutex
	more   chan struct{} // closed at the next call
	calls  []madeCall
	missed int
}

type madeCall struct {
	key     string
	at, end int64
}

func startCaller(t *testing.T, s *server, number int) *caller {
	t.Helper()
	c := &caller{cmd: exec.Command(os.Args[0]), done: make(chan struct{}), more: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), asCaller+"="+s.addr)
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	go c.read(t, out, number)
	return c
}

// read reads lines of "call KEY AT", "end CALL AT" and "missed".
func (c *caller) read(t *testing.T, out io.Reader, number int) {
	defer close(c.done)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		words := strings.Fields(lines.Text())
		c.mu.Lock()
		switch {
		case len(words) == 1 && words[0] == "missed":
			c.missed++
		case len(words) == 3 && words[0] == "call":
			at, _ := strconv.ParseInt(words[2], 10, 64)
			c.calls = append(c.calls, madeCall{key: words[1], at: at})
			close(c.more)
			c.more = make(chan struct{})
		case len(words) == 3 && words[0] == "end":
			call, _ := strconv.Atoi(words[1])
			c.calls[call].end, _ = strconv.ParseInt(words[2], 10, 64)
		default:
			t.Errorf("process %d says %q", number, lines.Text())
		}
		c.mu.Unlock()
	}
}

func (c *caller) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// await waits until the caller has made n calls.
func (c *caller) await(t *testing.T, n int) {
	t.Helper()
	limit := time.After(await.Patience)
	for {
		c.mu.Lock()
		got, more := len(c.calls), c.more
		c.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-more:
		case <-limit:
			t.Fatalf("waited for %d calls of a process, saw %d", n, got)
		}
	}
}

func (c *caller) kill(t *testing.T) {
	t.Helper()
	if c.killed > 0 {
		return
	}
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	wait := c.cmd.Process.Wait // before the pipe is closed: its output must still be read
	await.Return(t, "the end of a killed process", func() { _, _ = wait() })
	c.killed = time.Now().UnixNano()
	await.Receive(t, "the end of what a killed process wrote", c.done)
}

// callForEver is the main function of such a process. One goroutine for every key asks for slots, calls in them, and
// returns the slots that it missed.
func callForEver(addr string) {
	rules := callerRules()
	st, err := New(context.Background(), Options{Client: redis.NewClient(&redis.Options{Addr: addr}), API: "shared", Rules: rules, Epoch: Fresh})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	told := &teller{}
	for k := range callerKeys - 1 {
		go callKey(st, rules, fmt.Sprint("k", k), told)
	}
	callKey(st, rules, fmt.Sprint("k", callerKeys-1), told) // until the process is killed
}

// teller writes what happened, one line each.
type teller struct {
	mu    sync.Mutex
	calls int
}

func (t *teller) call(key string, begun time.Time) (number int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintln(os.Stdout, "call", key, begun.UnixNano())
	t.calls++
	return t.calls - 1
}

func (t *teller) end(number int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintln(os.Stdout, "end", number, time.Now().UnixNano())
}

func (t *teller) missed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintln(os.Stdout, "missed")
}

func callKey(st *Store, rules bucket.Rules, key string, told *teller) {
	ctx := context.Background()
	for {
		got, err := st.Reserve(ctx, []bucket.Ask{{Key: key, Limits: rules.Key, Want: 1, Horizon: 10 * time.Millisecond}})
		came := time.Now()
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				fmt.Fprintln(os.Stderr, err)
			}
			return
		}
		a := got[0]
		if len(a.Grants) == 0 {
			<-time.After(a.Now.Until(a.Wait.Until))
			continue
		}
		g := a.Grants[0]
		if ahead := a.Now.Until(g.At) - time.Since(came); ahead > 0 {
			<-time.After(ahead)
		}
		use := bucket.Use{Key: key, Grant: g}
		if begun := time.Now(); begun.Sub(g.At.Time()) > rules.Jitter*4/5 {
			use.Returned = true
			told.missed()
		} else {
			number := told.call(key, begun)
			<-time.After(time.Duration(g.Serial%17) * time.Millisecond)
			told.end(number)
		}
		if err := st.Settle(ctx, []bucket.Use{use}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
	}
}
