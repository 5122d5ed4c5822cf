package network

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/plan"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Proxy is the proxy between weir and the api.
type Proxy struct {
	server *toxiproxy.ApiServer
	api    string // the api's address
	listen string // the proxy's address; never changes
	proxy  *toxiproxy.Proxy

	mu    sync.Mutex
	spans []plan.Span // in which connections were disturbed
}

// NewProxy starts a proxy in front of the api.
func NewProxy(api string) (*Proxy, error) {
	n := &Proxy{
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
func (n *Proxy) start(toxic string) error {
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

// URL returns the address at which weir reaches the api.
func (n *Proxy) URL() string { return "http://" + n.listen }

// Spoil breaks every connection to the api, disturbs the new ones for a while, and breaks these too. It blocks until
// then.
func (n *Proxy) Spoil(ctx context.Context, t plan.Toxic, last time.Duration) error {
	n.mu.Lock()
	n.spans = append(n.spans, plan.Span{From: time.Now()})
	n.mu.Unlock()
	n.proxy.Stop()
	if err := n.start(t.JSON); err != nil {
		return err
	}
	stream.Sleep(ctx, last)
	n.proxy.Stop()
	if err := n.start(""); err != nil {
		return err
	}
	n.mu.Lock()
	n.spans[len(n.spans)-1].To = time.Now()
	n.mu.Unlock()
	return nil
}

// Spoilt returns the spans in which connections were disturbed. It must not be called during spoil.
func (n *Proxy) Spoilt() []plan.Span {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.spans
}

// Close ends the proxy.
func (n *Proxy) Close() error {
	n.proxy.Stop()
	return nil
}
