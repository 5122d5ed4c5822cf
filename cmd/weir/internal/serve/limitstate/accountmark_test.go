package limitstate

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/redisstore"
	"weir/cmd/weir/internal/config/environment"
	"weir/dispatcher/httpcall"
	"weir/ingest/await"

	"github.com/prometheus/client_golang/prometheus"
)

// redisForLimits runs a redis-server and connects the limits to it.
func redisForLimits(t *testing.T) *Options {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed: apt-get install redis-server")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(addr)
	server := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "", "--loglevel", "warning")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = await.Result(t, "the end of a killed redis-server", server.Wait)
	})
	t.Setenv("WEIR_REDIS_URL", "redis://"+addr)
	t.Setenv("WEIR_CONFIG", "")
	settings, err := environment.Read()
	if err != nil {
		t.Fatal(err)
	}
	o := serverForLimits(t)
	o.Caller = caller{map[string]bool{}}
	await.Until(t, "redis-server to answer", func() bool {
		o.Redis, err = DialRedis(t.Context(), settings, prometheus.NewRegistry(), o.Log)
		return err == nil && o.Redis.client.Load() != nil
	})
	return o
}

// ofVersion returns the rules of an api with a daily quota in an account, or without an account if account is "".
func ofVersion(version int64, account string) bucket.Rules {
	rules := bucket.Rules{
		Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1000}}, Lease: time.Minute, Version: version,
	}
	if account != "" {
		rules.In = &bucket.Membership{Account: account, API: "one", APIs: []string{"one"}, Lease: time.Minute}
		quota := bucket.Quota{Count: 1000, Window: bucket.Fixed, Per: 24 * time.Hour}
		rules.Shared = []bucket.Limit{{Name: account + "/day", Account: account, Quota: &quota}}
	}
	return rules
}

func openShared(t *testing.T, o *Options, rules bucket.Rules) *sharedLimits {
	t.Helper()
	s, err := openSharedLimits(t.Context(), o, &httpcall.API{Name: "one", Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// follow puts rules in force as a replica does that follows a change.
func (s *sharedLimits) follow(t *testing.T, rules bucket.Rules) {
	t.Helper()
	if err := s.Apply(rules); err != nil {
		t.Fatal(err)
	}
	if err := s.awaitOpen(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (s *sharedLimits) one(ctx context.Context) (uses []bucket.Use, err error) {
	got, err := s.Reserve(ctx, []bucket.Ask{{Key: "k", Limits: s.rulesNow().Key, Want: 1}})
	if err != nil {
		return nil, err
	}
	for _, g := range got[0].Grants {
		uses = append(uses, bucket.Use{Key: "k", Grant: g})
	}
	return uses, nil
}

// TestReplicaThatHasNotFollowed moves an api to an account and back. A replica that has not followed is granted
// nothing, does not replace the api's mark, and is granted slots again after it has followed.
func TestReplicaThatHasNotFollowed(t *testing.T) {
	o, ctx := redisForLimits(t), t.Context()
	first, late := openShared(t, o, ofVersion(1, "")), openShared(t, o, ofVersion(1, ""))
	if uses, err := late.one(ctx); err != nil || len(uses) != 1 {
		t.Fatal(uses, err)
	}
	first.follow(t, ofVersion(2, "acme"))
	if uses, err := late.one(ctx); !errors.Is(err, redisstore.ErrBehind) {
		t.Fatalf("%v, %v", uses, err)
	}
	if err := late.keep(ctx); err == nil {
		t.Error("the mark of the state that the api has left is stored in place of the api's")
	}
	own, err := first.readMark(ctx, epochKey("one"), nil)
	if err != nil || own.counted() != "acme" || own.Version != 2 {
		t.Fatalf("the api's mark is %+v, %v", own, err)
	}
	late.follow(t, ofVersion(2, "acme"))
	if _, err := late.one(ctx); err != nil {
		t.Errorf("after the replica has followed: %v", err)
	}
	first.follow(t, ofVersion(3, ""))
	if uses, err := late.one(ctx); !errors.Is(err, redisstore.ErrBehind) {
		t.Errorf("%v, %v", uses, err)
	}
	if _, err := first.one(ctx); err != nil {
		t.Error(err)
	}
}

// TestFormerStateThatFails checks that a former state which does not store the ends of calls delays no other ends.
// These ends are kept until the last of the state's calls has ended.
func TestFormerStateThatFails(t *testing.T) {
	o, ctx := redisForLimits(t), t.Context()
	s := openShared(t, o, ofVersion(1, "acme"))
	before, err := s.one(ctx)
	if err != nil || len(before) != 1 {
		t.Fatal(before, err)
	}
	s.follow(t, ofVersion(2, ""))
	client, err := o.Redis.reached()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Rename(ctx, "{weir:account/acme}:state", "{weir:account/acme}:aside").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Set(ctx, "{weir:account/acme}:state", "not a hash", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(ctx, before); err != nil {
		t.Errorf("a former state that fails stops other ends: %v", err)
	}
	if n := len(s.formers[0].owed); n != 1 {
		t.Errorf("%d ends are kept for the former state", n)
	}
	if err := client.Rename(ctx, "{weir:account/acme}:aside", "{weir:account/acme}:state").Err(); err != nil {
		t.Fatal(err)
	}
	s.retryFormers(ctx)
	if f := s.formers[0]; len(f.owed)+len(f.open) != 0 {
		t.Errorf("%d ends are kept, and %d grants are open, although the former state answers again", len(f.owed), len(f.open))
	}
	s.formers[0].until = time.Now().Add(-time.Second)
	if s.retryFormers(ctx); len(s.formers) != 0 {
		t.Error("the former state is kept for ever")
	}
}

// TestSeedEndsWithItsState checks that adding up the use of a state ends when the api leaves that state.
func TestSeedEndsWithItsState(t *testing.T) {
	o := redisForLimits(t)
	o.Caller = caller{map[string]bool{"one": true}} // its calls never end
	s := openShared(t, o, ofVersion(1, "acme"))
	client, err := o.Redis.reached()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Load().Touch(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		s.seed(t.Context())
		ended <- nil
	}()
	if err := s.Apply(ofVersion(2, "")); err != nil {
		t.Fatal(err)
	}
	_ = await.Result(t, "the end of adding up", func() error { return <-ended })
}
