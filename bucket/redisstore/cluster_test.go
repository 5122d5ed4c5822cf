package redisstore

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"weir/bucket"
	"weir/ingest/await"
)

// startCluster makes a cluster of three primaries with the 16,384 slots.
func startCluster(t *testing.T) *redis.ClusterClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
	defer cancel()
	var addrs []string
	var nodes []*redis.Client
	for i := range 3 {
		s := startServer(t, "--cluster-enabled", "yes", "--cluster-port", freePort(t), "--cluster-node-timeout", "30000")
		addrs, nodes = append(addrs, s.addr), append(nodes, s.client())
		if err := nodes[i].ClusterAddSlotsRange(ctx, 16384*i/3, 16384*(i+1)/3-1).Err(); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			continue
		}
		host, port, _ := net.SplitHostPort(addrs[0])
		bus := nodes[0].ConfigGet(ctx, "cluster-port").Val()["cluster-port"]
		if err := nodes[i].Do(ctx, "CLUSTER", "MEET", host, port, bus).Err(); err != nil {
			t.Fatal(err)
		}
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ready := 0; ready < 3; {
		ready = 0
		for _, n := range nodes {
			info := n.ClusterInfo(ctx).Val()
			if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3") {
				ready++
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the cluster does not come together")
		}
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// TestClusterTakesAReservationInOneSlot checks that all Redis keys of an api lie on one primary, whatever the names of
// its limits and keys, and that apis spread over the primaries.
func TestClusterTakesAReservationInOneSlot(t *testing.T) {
	c := startCluster(t)
	rules := lossRules()
	for i := range 12 {
		st, err := New(context.Background(), Options{Client: c, API: fmt.Sprint("api-", i), Rules: rules, Epoch: Fresh})
		if err != nil {
			t.Fatal(err)
		}
		var asks []bucket.Ask
		for _, key := range []string{"a", "{b}", "tenant.42", "}{"} {
			asks = append(asks, bucket.Ask{Key: key, Limits: rules.Key, Want: 2})
		}
		got, err := st.Reserve(context.Background(), asks)
		if err != nil {
			t.Fatalf("api %d: %v", i, err)
		}
		for j, a := range got {
			if len(a.Grants) != 2 {
				t.Errorf("api %d, key %s: %+v", i, asks[j].Key, a)
			}
		}
		if err := st.Settle(context.Background(), []bucket.Use{{Key: "{b}", Grant: got[1].Grants[1], Returned: true}}); err != nil {
			t.Error(err)
		}
	}
	var used atomic.Int64 // the masters are asked in parallel
	err := c.ForEachMaster(context.Background(), func(ctx context.Context, n *redis.Client) error {
		if n.DBSize(ctx).Val() > 0 {
			used.Add(1)
		}
		return nil
	})
	if err != nil || used.Load() < 2 {
		t.Errorf("12 apis lie on %d primaries (%v)", used.Load(), err)
	}
}

// forgetful is a connection that loses the answers to scripts while lose is set.
type forgetful struct {
	net.Conn
	lose *atomic.Bool
	sent *atomic.Int64 // counts the scripts whose answer is lost
	lost bool
}

// Write implements net.Conn.
func (f *forgetful) Write(data []byte) (int, error) {
	if f.lose.Load() && strings.Contains(string(data), "evalsha") {
		f.lost = true
		f.sent.Add(1)
	}
	return f.Conn.Write(data)
}

// Read implements net.Conn.
func (f *forgetful) Read(data []byte) (int, error) {
	n, err := f.Conn.Read(data)
	if f.lost && err == nil {
		return 0, io.EOF
	}
	return n, err
}

// TestClusterRunsAReservationOnce checks that the client does not repeat a reservation that a node of a cluster ran
// without an answer: the first slots would be charged for no call.
func TestClusterRunsAReservationOnce(t *testing.T) {
	var lose atomic.Bool
	var sent atomic.Int64
	o := *startCluster(t).Options()
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &forgetful{Conn: c, lose: &lose, sent: &sent}, err
	}
	c := redis.NewClusterClient(&o)
	defer func() { _ = c.Close() }()
	rules := lossRules()
	st, err := New(t.Context(), Options{Client: c, API: "a", Rules: rules, Epoch: Fresh})
	if err != nil {
		t.Fatal(err)
	}
	asks := []bucket.Ask{{Key: "k", Limits: rules.Key, Want: 1}}
	if _, err := st.Reserve(t.Context(), asks); err != nil { // the node knows the script from now on
		t.Fatal(err)
	}
	lose.Store(true)
	if got, err := st.Reserve(t.Context(), asks); err == nil || sent.Load() != 1 {
		t.Errorf("the script was sent %d times without an answer: %+v, %v", sent.Load(), got, err)
	}
	lose.Store(false)
	if _, err := st.Reserve(t.Context(), asks); err != nil {
		t.Error(err)
	}
}
