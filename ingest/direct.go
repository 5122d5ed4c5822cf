package ingest

import (
	"time"

	"github.com/nats-io/nats.go"
)

// Take accepts a producer's job that did not come over NATS, for example over HTTP, and handles it like a job on
// weir.jobs.<api>.<key>. It calls done once, after the job or its letter is stored, with the answer that a producer on
// NATS would get. It may call done before it returns. Take does not block. The service owns m and its header from then
// on.
func (s *Service) Take(api string, m Message, done func(Answer)) {
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	m.Redrive = false
	in := &submission{service: s, arrived: time.Now(), apiName: api, header: m.Header, hear: done}
	in.take(m)
}

// Largest returns how many bytes of a body the caller should read: the api's maximum or, for an unknown api, NATS's
// maximum.
func (s *Service) Largest(api string) int64 {
	if a, ok := s.opts.APIs()[api]; ok {
		return a.Rule.MaxBody
	}
	return s.opts.Conn.MaxPayload()
}

// Reads reports whether an api takes the key or a cost of its jobs from this header.
func (s *Service) Reads(api, header string) bool {
	a, ok := s.opts.APIs()[api]
	return ok && a.Rule.reads(header)
}
