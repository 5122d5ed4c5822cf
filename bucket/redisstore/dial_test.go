package redisstore

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestDial(t *testing.T) {
	s := startServer(t)
	c, err := Dial(context.Background(), "redis://"+s.addr+"/0")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := c.(*redis.Client); !ok {
		t.Errorf("one server is taken for %T", c)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestDialKeepsSecrets checks that an error of Dial does not contain the address's password.
func TestDialKeepsSecrets(t *testing.T) {
	for _, url := range []string{
		"redis://:hunter2@127.0.0.1:" + freePort(t), "redis://:hunter2@host:port", "hunter2://", "redis://:hunter2@host/x/y",
	} {
		c, err := Dial(context.Background(), url)
		if err == nil {
			t.Fatal("dialed", c.Close())
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error tells the password: %v", err)
		}
	}
}

func TestOldVersionsAreRefused(t *testing.T) {
	for version, fine := range map[string]bool{"5.0.14": false, "6.0.16": false, "6.2.0": true, "7.0.15": true, "8.2": true, "?": true} {
		if err := checkVersion(version); (err == nil) != fine {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// TestDialFindsACluster checks that any node leads to the whole cluster.
func TestDialFindsACluster(t *testing.T) {
	nodes := startCluster(t)
	c, err := Dial(context.Background(), "redis://"+nodes.Options().Addrs[1])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, ok := c.(*redis.ClusterClient); !ok {
		t.Fatalf("a cluster is taken for %T", c)
	}
	st, err := New(context.Background(), Options{Client: c, API: "a", Rules: lossRules(), Epoch: Fresh})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Touch(context.Background()); err != nil {
		t.Error(err)
	}
}
