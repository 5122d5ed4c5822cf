package plan

import (
	"fmt"
	"strconv"
	"time"

	"weir/bucket"
	"weir/bucket/queue"

	"github.com/nats-io/nats.go"
)

// Loads returns the loads of the steady keys, of one key that gets more jobs than its bucket holds, and of one that is
// called rarely.
func (o *Options) Loads() []Load {
	every := time.Duration(o.Keys) * time.Second / time.Duration(o.Jobs)
	loads := []Load{
		{o: o, key: burstKey, Every: 2 * time.Second, Many: 2 * burstHolds, First: 1},
		{o: o, key: slowKey, Every: slowPer + 2*Jitter, Many: 1, First: 3},
	}
	for _, key := range o.AllKeys() {
		loads = append(loads, Load{o: o, key: key, Every: every, Many: 1, First: 1})
	}
	return loads
}

// Job returns the nth job of a load.
func (l *Load) Job(n int) Job {
	j := Job{Key: l.key, ID: fmt.Sprintf("%s-%06d", l.key, n)}
	if l.o.Priorities {
		j.Priority = bucket.Priorities[n%len(bucket.Priorities)]
	}
	if l.o.Reuse {
		j.Ask = fmt.Sprint(askQuery, n%asks)
	}
	if l.o.Settled {
		t := TokensOf(n)
		j.Tokens = &t
	}
	return j
}

// AllKeys returns the steady keys. In a fleet each partition has the same number of them.
func (o *Options) AllKeys() []string {
	var keys []string
	in := map[int]int{}
	for n := 1; len(keys) < o.Keys; n++ {
		key := fmt.Sprintf("k%d", n)
		if p := queue.PartitionOf(key, o.Partitions()); !o.IsFleet() || in[p] < o.Keys/o.Partitions() {
			in[p]++
			keys = append(keys, key)
		}
	}
	return keys
}

// BlockJobs is how many large jobs each of LargeKeys keys gets before a power cut. Together they take more than one
// block of 8 MiB, so that the server rewrites the first block when most of its jobs are deleted.
const BlockJobs = 15

// LargeKeysOf returns keys for large jobs of one partition.
func (o *Options) LargeKeysOf(partition int) []string {
	var keys []string
	for n := 0; len(keys) < LargeKeys; n++ {
		if key := fmt.Sprintf("large%d", n); queue.PartitionOf(key, o.Partitions()) == partition {
			keys = append(keys, key)
		}
	}
	return keys
}

// Job is one job as its producer sends it.
type Job struct {
	Key, ID  string
	Priority bucket.Priority
	Ask      string // its query, if other jobs have the same; else ""
	Tokens   *Tokens
	Large    []byte // its body, if it is large; else the body is its id
}

// Load is the load of one producer: a key, and how often jobs come for it.
type Load struct {
	o     *Options
	key   string
	Every time.Duration // between two groups of jobs
	Many  int
	First int // jobs at once at the start
}

// Tokens are what the call of a job takes, and what its producer estimates.
type Tokens struct{ In, Out, GuessedIn, GuessedOut int64 }

// TokensOf returns the tokens of the nth job of a key. Estimates are too high and too low in turn.
func TokensOf(n int) Tokens {
	t := Tokens{In: int64(10 + n%21), Out: int64(10 + n*7%21)}
	if n%2 == 0 {
		t.GuessedIn, t.GuessedOut = t.In*misjudged, t.Out*misjudged
	} else {
		t.GuessedIn, t.GuessedOut = t.In/misjudged, t.Out/misjudged
	}
	return t
}

// Describe adds the tokens to a job: to the body what the api takes, and to headers what the producer estimates.
func (t *Tokens) Describe(msg *nats.Msg, id string) {
	msg.Data = fmt.Appendf(nil, `{"id":%q,"metadata":{"input_tokens":"%d","output_tokens":"%d"}}`, id, t.In, t.Out)
	for name, n := range map[string]int64{"Weir-Cost": t.GuessedIn + t.GuessedOut, "X-Input": t.GuessedIn, "X-Output": t.GuessedOut} {
		msg.Header[name] = []string{strconv.FormatInt(n, 10)}
	}
}
