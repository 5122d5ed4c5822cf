package limitstate

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/redisstore"
	"weir/cmd/weir/internal/config/environment"
	"weir/dispatcher/httpcall"
	"weir/ingest/await"

	"github.com/prometheus/client_golang/prometheus"
)

// TestRedisIsAskedOnceAtTheStart checks that a Redis that accepts connections and does not answer delays a start only
// once, however many apis and notes need it. The limits try again later.
func TestRedisIsAskedOnceAtTheStart(t *testing.T) {
	o := serverForLimits(t)
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	go func() {
		for conn, err := mute.Accept(); err == nil; conn, err = mute.Accept() {
			asked.Add(1)
			defer func() { _ = conn.Close() }()
		}
	}()
	t.Cleanup(func() { _ = mute.Close() })
	redisAt(t, o, mute.Addr())
	started := asked.Load()
	notes := o.Redis.Notes()
	if _, err := notes.Read(t.Context(), "store"); !errors.Is(err, redisstore.ErrUnreachable) {
		t.Errorf("a note is read: %v", err)
	}
	if err := notes.Write(t.Context(), "store", nil); !errors.Is(err, redisstore.ErrUnreachable) {
		t.Errorf("a note is written: %v", err)
	}
	var limits *sharedLimits
	for _, name := range []string{"a", "b", "c"} {
		if limits, err = openSharedLimits(t.Context(), o, &httpcall.API{Name: name, Rules: bucket.Rules{}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := asked.Load(); started != 1 || n != started {
		t.Errorf("Redis was asked %d times by the link and %d times in all", started, n)
	}
	go func() { _ = limits.run(t.Context()) }()
	await.Until(t, "the limits to ask again", func() bool { return asked.Load() > started })
}

// awayRedis makes Redis the counter of o's limits. Nothing listens at its address.
func awayRedis(t *testing.T, o *Options) {
	t.Helper()
	none, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = none.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	redisAt(t, o, none.Addr())
}

// redisAt makes the Redis at an address the counter of o's limits.
func redisAt(t *testing.T, o *Options, at net.Addr) {
	t.Helper()
	t.Setenv("WEIR_REDIS_URL", "redis://"+at.String())
	t.Setenv("WEIR_CONFIG", "")
	settings, err := environment.Read()
	if err != nil {
		t.Fatal(err)
	}
	if o.Redis, err = DialRedis(t.Context(), settings, prometheus.NewRegistry(), o.Log); err != nil {
		t.Fatal(err)
	}
}

// TestStopBeforeRedisAnswers checks that a stop is an ordinary one although Redis has never answered.
func TestStopBeforeRedisAnswers(t *testing.T) {
	o := serverForLimits(t)
	awayRedis(t, o)
	limits, err := openSharedLimits(t.Context(), o, &httpcall.API{Name: "a", Rules: bucket.Rules{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := limits.run(ctx); err != nil {
		t.Errorf("the stop fails: %v", err)
	}
}

// TestDroppedLimitsLeaveNothing checks that an api that was opened and is not going to run can be opened again: its
// levels are then shown, and it is no member of an account twice.
func TestDroppedLimitsLeaveNothing(t *testing.T) {
	for _, inRedis := range []bool{false, true} {
		o := serverForLimits(t)
		o.Levels, o.Caller, o.Ledger = &Levels{}, caller{}, &LedgerWatch{}
		if inRedis {
			awayRedis(t, o)
		}
		rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, Capacity: 1, InFlight: 1}}
		limits, err := Open(t.Context(), o, &httpcall.API{Name: "a", Rules: rules}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(o.Levels.watches) != 1 || inRedis != (len(o.Pools.members(nil)) == 1) {
			t.Fatal("the limits are not known")
		}
		limits.Drop()
		if n, m := len(o.Levels.watches), len(o.Pools.members(nil)); n+m != 0 {
			t.Errorf("in Redis %t: %d watches and %d members are left", inRedis, n, m)
		}
	}
}
