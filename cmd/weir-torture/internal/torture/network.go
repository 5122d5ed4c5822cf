package torture

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"weir/bucket/stream"
)

// toxic is a disturbance of the connections between weir and the api.
type toxic struct{ name, json string }

// toxics are the possible disturbances. Those that delay requests stay within weir's jitter. The others affect requests
// or answers, on all connections or on half of them.
var toxics = []toxic{
	{"requests late", `{"name":"t","type":"latency","stream":"upstream","attributes":{"latency":40,"jitter":40}}`},
	{"answers late", `{"name":"t","type":"latency","stream":"downstream","attributes":{"latency":300,"jitter":200}}`},
	{"answers slow", `{"name":"t","type":"bandwidth","stream":"downstream","attributes":{"rate":1}}`},
	{"answers in pieces", `{"name":"t","type":"slicer","stream":"downstream","attributes":{"average_size":20,"size_variation":10,"delay":20000}}`},
	{"answers swallowed", `{"name":"t","type":"timeout","stream":"downstream","toxicity":0.5,"attributes":{"timeout":0}}`},
	{"requests swallowed", `{"name":"t","type":"timeout","stream":"upstream","toxicity":0.5,"attributes":{"timeout":500}}`},
	{"connections reset at the answer", `{"name":"t","type":"reset_peer","stream":"downstream","toxicity":0.5,"attributes":{"timeout":0}}`},
	{"connections reset at the request", `{"name":"t","type":"reset_peer","stream":"upstream","toxicity":0.5,"attributes":{"timeout":0}}`},
	{"answers cut", `{"name":"t","type":"limit_data","stream":"downstream","toxicity":0.5,"attributes":{"bytes":90}}`},
	{"connections closed late", `{"name":"t","type":"slow_close","stream":"downstream","attributes":{"delay":500}}`},
}

// network is the proxy between weir and the api.
type network struct {
	server *toxiproxy.ApiServer
	api    string // the api's address
	listen string // the proxy's address; never changes
	proxy  *toxiproxy.Proxy

	mu    sync.Mutex
	spans []span // in which connections were disturbed
}

// span is a span of wall-clock time.
type span struct{ from, to time.Time }

// newNetwork starts a proxy in front of the api.
func newNetwork(api string) (*network, error) {
	n := &network{
		server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		api:    strings.TrimPrefix(api, "http://"), listen: "127.0.0.1:0",
	}
	if err := n.start(""); err != nil {
		return nil, err
	}
	n.listen = n.proxy.Listen
	return n, nil
}

// start starts a proxy, with a toxic if one is given. The toxics of a proxy that has connections must not change:
// toxiproxy 2.5.0 deadlocks if a connection ends at that moment.
func (n *network) start(toxic string) error {
	n.proxy = toxiproxy.NewProxy(n.server, "api", n.listen, n.api)
	if toxic != "" {
		if _, err := n.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			return fmt.Errorf("prepare a proxy before the api: %w", err)
		}
	}
	if err := n.proxy.Start(); err != nil {
		return fmt.Errorf("start a proxy before the api: %w", err)
	}
	return nil
}

func (n *network) url() string { return "http://" + n.listen }

// spoil breaks every connection to the api, disturbs the new ones for a while, and breaks these too. It blocks until
// then.
func (n *network) spoil(ctx context.Context, t toxic, last time.Duration) error {
	n.mu.Lock()
	n.spans = append(n.spans, span{from: time.Now()})
	n.mu.Unlock()
	n.proxy.Stop()
	if err := n.start(t.json); err != nil {
		return err
	}
	stream.Sleep(ctx, last)
	n.proxy.Stop()
	if err := n.start(""); err != nil {
		return err
	}
	n.mu.Lock()
	n.spans[len(n.spans)-1].to = time.Now()
	n.mu.Unlock()
	return nil
}

// spoilt returns the spans in which connections were disturbed. It must not be called during spoil.
func (n *network) spoilt() []span {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.spans
}

func (n *network) close() error {
	n.proxy.Stop()
	return nil
}
