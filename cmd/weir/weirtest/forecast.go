package weirtest

import (
	"encoding/json"

	"github.com/nats-io/nats.go"
)

// RefusedMany submits one job on each subject, all before it reads an answer. It returns the answers that refuse a job.
func (r *Rig) RefusedMany(subjects []string) (refused []map[string]any) {
	r.T.Helper()
	inbox := nats.NewInbox()
	answers, err := r.NC.SubscribeSync(inbox)
	if err != nil {
		r.T.Fatal(err)
	}
	for _, subject := range subjects {
		if err := r.NC.PublishRequest(subject, inbox, nil); err != nil {
			r.T.Fatal(err)
		}
	}
	for range subjects {
		msg, err := answers.NextMsg(Patience)
		if err != nil {
			r.T.Fatal(err)
		}
		var a map[string]any
		if err := json.Unmarshal(msg.Data, &a); err != nil {
			r.T.Fatalf("%s: %v", msg.Data, err)
		}
		if a["error"] != nil {
			refused = append(refused, a)
		}
	}
	return refused
}
