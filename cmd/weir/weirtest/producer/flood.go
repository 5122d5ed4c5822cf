package producer

import (
	"encoding/json"
	"fmt"
	"sync"

	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// Flood makes several producers submit jobs of one key at the same time, each producer over its own connection. It
// counts the answers by code; 200 stands for a receipt.
func (p Producer) Flood(api, key string, producers, each int) map[int]int {
	p.T.Helper()
	codes := map[int]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range producers {
		nc, err := nats.Connect(p.NC.ConnectedUrl(), nats.Timeout(await.Patience))
		if err != nil {
			p.T.Fatal(err)
		}
		defer nc.Close()
		answers, err := nc.SubscribeSync(fmt.Sprintf("flood.%s.%d.*", key, n))
		if err != nil {
			p.T.Fatal(err)
		}
		all.Go(func() {
			for i := range each {
				if err := nc.PublishRequest("weir.jobs."+api+"."+key, fmt.Sprintf("flood.%s.%d.%d", key, n, i), []byte("x")); err != nil {
					p.T.Error(err)
					return
				}
			}
			for range each {
				msg, err := answers.NextMsg(await.Patience)
				if err != nil {
					p.T.Error(err)
					return
				}
				var a Answer
				if err := json.Unmarshal(msg.Data, &a); err != nil {
					p.T.Error(err)
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
	await.Return(p.T, "the answers to a flood", all.Wait)
	return codes
}

// RefusedMany submits one job on each subject, all before it reads an answer. It returns the answers that refuse a job.
func (p Producer) RefusedMany(subjects []string) (refused []map[string]any) {
	p.T.Helper()
	inbox := nats.NewInbox()
	answers, err := p.NC.SubscribeSync(inbox)
	if err != nil {
		p.T.Fatal(err)
	}
	for _, subject := range subjects {
		if err := p.NC.PublishRequest(subject, inbox, nil); err != nil {
			p.T.Fatal(err)
		}
	}
	for range subjects {
		msg, err := answers.NextMsg(await.Patience)
		if err != nil {
			p.T.Fatal(err)
		}
		var a map[string]any
		if err := json.Unmarshal(msg.Data, &a); err != nil {
			p.T.Fatalf("%s: %v", msg.Data, err)
		}
		if a["error"] != nil {
			refused = append(refused, a)
		}
	}
	return refused
}

// RefusedAgain submits the same jobs several times at once. It returns the sequences of letters in the answers.
func (p Producer) RefusedAgain(times int, ids ...string) (told []uint64) {
	p.T.Helper()
	inbox := nats.NewInbox()
	answers, err := p.NC.SubscribeSync(inbox)
	if err != nil {
		p.T.Fatal(err)
	}
	for range times {
		for _, id := range ids {
			msg := &nats.Msg{Subject: "weir.jobs.full.k", Reply: inbox, Data: []byte("body of " + id), Header: nats.Header{"Nats-Msg-Id": {id}}}
			if err := p.NC.PublishMsg(msg); err != nil {
				p.T.Fatal(err)
			}
		}
	}
	for range times * len(ids) {
		msg, err := answers.NextMsg(await.Patience)
		if err != nil {
			p.T.Fatal(err)
		}
		var a Answer
		if err := json.Unmarshal(msg.Data, &a); err != nil || a.Error == nil || a.Error.Code != 429 || a.Letter == 0 {
			p.T.Fatalf("answered %s", msg.Data)
		}
		told = append(told, a.Letter)
	}
	return told
}
