package admin

import (
	"encoding/json"
	"errors"

	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/flowsamples"
	"weir/dispatcher/desk"

	"github.com/nats-io/nats.go/micro"
)

// pastOf is the question about the recent flow of an api, or of one of its keys.
type pastOf struct {
	Key *string `json:"key,omitempty"`
}

// pastAnswer is one replica's part of the flow.
type pastAnswer struct {
	desk.APIState
	Parts []flowsamples.Part `json:"parts"`
}

// history answers with the flow of the partitions that this replica dispatches.
func (o operator) history(req micro.Request) {
	api := apiAsked(historySubject, req.Subject())
	var q pastOf
	if err := json.Unmarshal(req.Data(), &q); err != nil {
		respondError(req, errors.New("the question cannot be read"))
		return
	}
	state, err := o.Dispatcher.Desk.State(api)
	if err != nil {
		respondError(req, err)
		return
	}
	answer := pastAnswer{APIState: state, Parts: []flowsamples.Part{}}
	if q.Key != nil {
		answer.Parts = o.History.Key(api, *q.Key)
	} else {
		answer.Parts = o.History.API(api)
	}
	data := marshal(answer)
	for len(data) > o.most && len(answer.Parts) > 1 {
		answer.Parts = answer.Parts[len(answer.Parts)/2:]
		data = marshal(answer)
	}
	_ = req.Respond(data) // on an error the asking process has gone
}

// History returns the recent flow into and out of an api, or of one of its keys, added up over all replicas. It is
// empty if no replica has recorded any. It waits for answers as Keys does.
func History(c *connect.Connection, api string, key *string) ([]flowsamples.Part, error) {
	sum := []flowsamples.Part{}
	q := ownersQuestion{subject: historySubject, api: api, body: pastOf{key}, waits: answerWaits{firstAnswer, nextAnswer}}
	heard, err := askOwners(c, q, func(a *pastAnswer) (desk.APIState, error) {
		sum = flowsamples.Add(sum, a.Parts)
		return a.APIState, nil
	})
	if err == nil && len(sum) == 0 {
		err = heard.failed
	}
	return sum, err
}
