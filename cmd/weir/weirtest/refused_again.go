package weirtest

import (
	"encoding/json"

	"weir/deadletter"

	"github.com/nats-io/nats.go"
)

// RefusedAgain submits the same jobs several times at once. It returns the sequences of letters in the answers.
func (r *Rig) RefusedAgain(times int, ids ...string) (told []uint64) {
	r.T.Helper()
	inbox := nats.NewInbox()
	answers, err := r.NC.SubscribeSync(inbox)
	if err != nil {
		r.T.Fatal(err)
	}
	for range times {
		for _, id := range ids {
			msg := &nats.Msg{Subject: "weir.jobs.full.k", Reply: inbox, Data: []byte("body of " + id), Header: nats.Header{"Nats-Msg-Id": {id}}}
			if err := r.NC.PublishMsg(msg); err != nil {
				r.T.Fatal(err)
			}
		}
	}
	for range times * len(ids) {
		msg, err := answers.NextMsg(Patience)
		if err != nil {
			r.T.Fatal(err)
		}
		var a Answer
		if err := json.Unmarshal(msg.Data, &a); err != nil || a.Error == nil || a.Error.Code != 429 || a.Letter == 0 {
			r.T.Fatalf("answered %s", msg.Data)
		}
		told = append(told, a.Letter)
	}
	return told
}

// ThrottledEvents returns the number of refusals in each throttled event of a key, by job.
func (r *Rig) ThrottledEvents() map[string][]int {
	r.T.Helper()
	events := map[string][]int{}
	for _, msg := range r.Stored(deadletter.EventsStream, "weir.events.throttled.full.k") {
		var e struct {
			Data struct {
				Job      string
				Refusals int
			}
		}
		if err := json.Unmarshal(msg.Data, &e); err != nil {
			r.T.Fatal(err)
		}
		events[e.Data.Job] = append(events[e.Data.Job], e.Data.Refusals)
	}
	return events
}
