package deadletter

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// LastCall is what is known about the last call of a letter's job. It helps a person to find the call's outcome.
type LastCall struct {
	Started    time.Time // zero: unknown
	Wrote      time.Time // when weir had written the whole request to the network; zero: never, or unknown
	Bytes      int64     // of the request that weir has written to the network; -1: unknown
	Connection Connection
	Ended      time.Time // when the answer was complete or the call was cut off; zero: unknown
	CutBy      Cutter    // "" if there was an answer
	Target     string    // identifies the called address without revealing it; "" if unknown
}

// Connection is the kind of connection that a call used: a closed set.
type Connection string

// The connections.
const (
	NewConnection  Connection = "new"  // dialled for the call
	KeptConnection Connection = "kept" // had carried a call before
)

// Cutter is what ended a call that had no answer: a closed set.
type Cutter string

// The ends of calls without an answer.
const (
	CutByTimeout Cutter = "timeout" // the api's timeout passed
	CutByReset   Cutter = "reset"   // the api reset the connection
	CutByClose   Cutter = "closed"  // the api closed the connection
	CutByNetwork Cutter = "network" // anything else
	CutByDeath   Cutter = "weir"    // the calling process died, or lost the right to the key's partition
)

// The headers of a letter that hold its LastCall.
const (
	HeaderCalledAt   = "Weir-Dead-Called-At"
	HeaderWroteAt    = "Weir-Dead-Wrote-At"
	HeaderSentBytes  = "Weir-Dead-Sent-Bytes"
	HeaderConnection = "Weir-Dead-Connection"
	HeaderEndedAt    = "Weir-Dead-Ended-At"
	HeaderCutBy      = "Weir-Dead-Cut-By"
	HeaderTarget     = "Weir-Dead-Target"
)

// facts adds the known parts to a letter's headers.
func (c *LastCall) facts(facts map[string]string) {
	if c == nil {
		return
	}
	at := func(name string, t time.Time) {
		if !t.IsZero() {
			facts[name] = t.UTC().Format(time.RFC3339Nano)
		}
	}
	at(HeaderCalledAt, c.Started)
	at(HeaderWroteAt, c.Wrote)
	at(HeaderEndedAt, c.Ended)
	if c.Bytes >= 0 {
		facts[HeaderSentBytes] = strconv.FormatInt(c.Bytes, 10)
	}
	for name, text := range map[string]string{HeaderConnection: string(c.Connection), HeaderCutBy: string(c.CutBy), HeaderTarget: c.Target} {
		if text != "" {
			facts[name] = text
		}
	}
}

// readLastCall reads what facts wrote. It returns nil if the headers have nothing of it.
func readLastCall(h nats.Header) *LastCall {
	at := func(name string) time.Time {
		t, err := time.Parse(time.RFC3339Nano, h.Get(name))
		if err != nil {
			return time.Time{}
		}
		return t
	}
	c := LastCall{
		Started: at(HeaderCalledAt), Wrote: at(HeaderWroteAt), Ended: at(HeaderEndedAt), Bytes: -1,
		Connection: Connection(h.Get(HeaderConnection)), CutBy: Cutter(h.Get(HeaderCutBy)), Target: h.Get(HeaderTarget),
	}
	if n, err := strconv.ParseInt(h.Get(HeaderSentBytes), 10, 64); err == nil {
		c.Bytes = n
	}
	if c == (LastCall{Bytes: -1}) {
		return nil
	}
	return &c
}
