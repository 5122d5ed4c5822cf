package ingest

import (
	"time"

	"github.com/nats-io/nats.go"
)

// Take accepts a producer's job that did not come over NATS, for example over HTTP. The same code judges, stores,
// buries and counts it as a job on weir.jobs.<api>.<key>. Take calls done once, with the answer that a producer on NATS
// would get, after the job or the letter was stored. It may call done before it returns. Take does not block. m and its
// header belong to the service from then on.
func (s *Service) Take(api string, m Message, done func(Answer)) {
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	m.Redrive = false
	in := &submission{service: s, arrived: time.Now(), apiName: api, header: m.Header, hear: done}
	in.take(m)
}

// Largest returns how many bytes of a body are worth reading: the api's maximum or, for an unknown api, the maximum of
// NATS.
func (s *Service) Largest(api string) int64 {
	if a, ok := s.opts.APIs()[api]; ok {
		return a.Rule.MaxBody
	}
	return s.opts.Conn.MaxPayload()
}

// Reads reports whether the configuration of an api uses a header of its jobs, for the key or for a cost.
func (s *Service) Reads(api, header string) bool {
	a, ok := s.opts.APIs()[api]
	return ok && a.Rule.reads(header)
}
