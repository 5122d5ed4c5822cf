package weirtest

import (
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"

	"github.com/nats-io/nats.go"
)

// Pay submits a job whose id is also its body.
func (r *Rig) Pay(key, id string) {
	r.T.Helper()
	r.Send("pay", key, nats.Header{"Nats-Msg-Id": {id}, "Weir-Path": {"/" + key}}, id)
}

func (r *Rig) CheckRateOf(arrivals []fakeapi.Arrival, perSecond int64) {
	r.T.Helper()
	r.CheckRate(arrivals, bucket.Rate{Count: perSecond, Per: time.Second, Burst: 1})
}
