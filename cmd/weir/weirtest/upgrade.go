package weirtest

import (
	"weir/cmd/weir/internal/ops/migrate"

	"github.com/nats-io/nats.go/jetstream"
)

func (r *Rig) Streams() []*jetstream.StreamInfo {
	r.T.Helper()
	all, err := migrate.Streams(r.T.Context(), r.JS)
	if err != nil {
		r.T.Fatal(err)
	}
	return all
}
