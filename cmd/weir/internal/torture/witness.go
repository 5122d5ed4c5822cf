package torture

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// witness listens to the intents that weir writes down, as anybody can who may subscribe: after a run it says of which
// jobs a call was announced.
type witness struct {
	nc *nats.Conn

	mu   sync.Mutex
	seen map[place]struct{}
}

// place is where a job is queued.
type place struct {
	stream string
	seq    uint64
}

func startWitness(url string) (*witness, error) {
	w := &witness{seen: map[place]struct{}{}}
	nc, err := nats.Connect(url, nats.Name("torture witness"), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.RetryOnFailedConnect(true), nats.PingInterval(5*time.Second))
	if err != nil {
		return nil, fmt.Errorf("connect the witness: %w", err)
	}
	w.nc = nc
	if _, err := nc.Subscribe("weir.q."+apiName+".*.i.*", w.take); err != nil {
		nc.Close()
		return nil, fmt.Errorf("listen to intents: %w", err)
	}
	return w, nil
}

func (w *witness) take(m *nats.Msg) {
	var intents []struct {
		Seq uint64 `json:"seq"`
	}
	tokens := strings.Split(m.Subject, ".")
	if json.Unmarshal(m.Data, &intents) != nil || len(tokens) < 5 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range intents {
		w.seen[place{"WEIR_" + apiName + "_" + tokens[3], i.Seq}] = struct{}{}
	}
}

// announced returns where the jobs are of which a call was announced.
func (w *witness) announced() map[place]struct{} {
	w.nc.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}
