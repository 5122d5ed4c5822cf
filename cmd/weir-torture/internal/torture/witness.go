package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/bucket/queue"
	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/plan"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// witness collects the intents that weir stores. It subscribes to them at every server. Whenever it connects to a
// server, it also reads the intents in the queue. At the end of a run it reports which jobs had an intent.
type witness struct {
	conns      []*nats.Conn
	partitions int
	work       sync.WaitGroup

	mu   sync.Mutex
	seen map[judge.Place]struct{}
}

// startWitness subscribes at these servers, for an api whose queue has that many partitions.
func startWitness(urls []string, partitions int, as []nats.Option) (*witness, error) {
	w := &witness{seen: map[judge.Place]struct{}{}, partitions: partitions}
	for _, url := range urls {
		if err := w.listen(url, as); err != nil {
			w.announced()
			return nil, err
		}
	}
	return w, nil
}

func (w *witness) listen(url string, as []nats.Option) error {
	read := func(nc *nats.Conn) { w.work.Go(func() { w.read(nc) }) }
	nc, err := nats.Connect(url, append(slices.Clone(as), nats.Name("torture witness"), nats.MaxReconnects(-1), nats.ReconnectWait(5*time.Millisecond),
		nats.ReconnectJitter(0, 0), nats.RetryOnFailedConnect(true), nats.PingInterval(5*time.Second), nats.ErrorHandler(nothingNew),
		nats.ConnectHandler(read), nats.ReconnectHandler(read))...)
	if err != nil {
		return fmt.Errorf("connect the witness: %w", err)
	}
	w.conns = append(w.conns, nc)
	if _, err := nc.Subscribe("weir.q."+plan.APIName+".*.i.*", func(m *nats.Msg) { w.take(m.Subject, m.Data) }); err != nil {
		return fmt.Errorf("listen to intents: %w", err)
	}
	return nil
}

// read reads the intents that are in the queue now. It does so before weir deals with them, because weir has just lost
// the server too, or is starting.
func (w *witness) read(nc *nats.Conn) {
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(2*time.Second))
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for p := range w.partitions {
		stream, err := js.Stream(ctx, queue.StreamName(plan.APIName, p))
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return // before the first weir
		} else if err != nil {
			continue // the server is down again, and will come back
		}
		subject := jetstream.WithGetMsgSubject("weir.q." + plan.APIName + "." + strconv.Itoa(p) + ".i.*")
		for seq := uint64(1); ; seq++ {
			m, err := stream.GetMsg(ctx, seq, subject)
			if err != nil {
				break
			}
			w.take(m.Subject, m.Data)
			seq = m.Sequence
		}
	}
}

func (w *witness) take(subject string, data []byte) {
	var intents []queue.Intent
	tokens := strings.Split(subject, ".")
	if json.Unmarshal(data, &intents) != nil || len(tokens) < 5 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range intents {
		w.seen[judge.Place{Stream: "WEIR_" + plan.APIName + "_" + tokens[3], Seq: i.Seq}] = struct{}{}
	}
}

// announced ends the witness. It returns the places of the jobs that had an intent.
func (w *witness) announced() map[judge.Place]struct{} {
	for _, nc := range w.conns {
		nc.Close()
	}
	w.work.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}
