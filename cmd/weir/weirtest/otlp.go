package weirtest

import (
	"encoding/json"

	"github.com/nats-io/nats.go"
)

// Hand submits a job with a secret in its path, its query and its body. It returns the code of a refusal, or 0.
func (r *KillRig) Hand(key, id string, header nats.Header) (refused int) {
	r.T.Helper()
	msg := &nats.Msg{Subject: "weir.jobs.pay." + key, Data: []byte(`{"a":"swordfish"}`), Header: nats.Header{
		"Nats-Msg-Id": {id}, "Weir-Path": {"/swordfish/" + key}, "Weir-Query": {"q=swordfish"},
	}}
	for name, values := range header {
		msg.Header[name] = values
	}
	reply, err := r.NC.RequestMsg(msg, Patience)
	if err != nil {
		r.T.Fatal(err)
	}
	var a Answer
	if err := json.Unmarshal(reply.Data, &a); err != nil {
		r.T.Fatal(err)
	}
	if a.Error != nil {
		return a.Error.Code
	}
	return 0
}
