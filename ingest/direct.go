package ingest

import (
	"time"

	"github.com/nats-io/nats.go"
)

// Take takes a producer's job that came another way than by NATS, such as over HTTP. It is judged, stored, buried and counted as one that
// came on weir.jobs.<api>.<key>, by the same code. done is called once, with what a producer on NATS would be told, after the stream or
// the letter has been stored; perhaps before Take returns, which does not block. m and its header are the service's from then on.
func (s *Service) Take(api string, m Message, done func(Answer)) {
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	m.Redrive = false
	in := &submission{service: s, arrived: time.Now(), apiName: api, header: m.Header, hear: done}
	in.take(m)
}

// Largest is how many bytes of a body are worth reading: what the api takes, or, for one that is not configured, what NATS would carry.
func (s *Service) Largest(api string) int64 {
	if a, ok := s.opts.APIs()[api]; ok {
		return a.Rule.MaxBody
	}
	return s.opts.Conn.MaxPayload()
}

// Reads reports whether an api reads a header of its jobs because its configuration says so: for the key, or for a cost.
func (s *Service) Reads(api, header string) bool {
	a, ok := s.opts.APIs()[api]
	return ok && a.Rule.reads(header)
}
