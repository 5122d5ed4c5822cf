package weirtest

import (
	"encoding/json"
	"fmt"
	"sync"

	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// Flood makes several producers submit jobs of one key at the same time, each producer over its own connection. It
// counts the answers by code; 200 stands for a receipt.
func (r *Rig) Flood(api, key string, producers, each int) map[int]int {
	r.T.Helper()
	codes := map[int]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range producers {
		nc, err := nats.Connect(r.Worker.NATSURL(), nats.Timeout(await.Patience))
		if err != nil {
			r.T.Fatal(err)
		}
		defer nc.Close()
		answers, err := nc.SubscribeSync(fmt.Sprintf("flood.%s.%d.*", key, n))
		if err != nil {
			r.T.Fatal(err)
		}
		all.Go(func() {
			for i := range each {
				if err := nc.PublishRequest("weir.jobs."+api+"."+key, fmt.Sprintf("flood.%s.%d.%d", key, n, i), []byte("x")); err != nil {
					r.T.Error(err)
					return
				}
			}
			for range each {
				msg, err := answers.NextMsg(Patience)
				if err != nil {
					r.T.Error(err)
					return
				}
				var a Answer
				if err := json.Unmarshal(msg.Data, &a); err != nil {
					r.T.Error(err)
				}
				code := 200
				if a.Error != nil {
					code = a.Error.Code
				}
				mu.Lock()
				codes[code]++
				mu.Unlock()
			}
		})
	}
	await.Return(r.T, "the answers to a flood", all.Wait)
	return codes
}

// Swept reports whether the worker has seen the deletion of all finished jobs.
func (r *Rig) Swept() bool {
	for _, q := range r.Worker.Parts().Queues {
		for _, p := range q.Partitions() {
			if p.Unswept() > 0 {
				return false
			}
		}
	}
	return true
}
