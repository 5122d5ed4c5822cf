package fakeapi

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Fixed bounds.
const (
	maxHeaderBytes = 64 << 10
	// MaxAnswer is the longest answer body that a behaviour may order, in bytes.
	MaxAnswer = 1 << 30
	// MaxKeepBody is the largest Options.KeepBody, in bytes.
	MaxKeepBody = 4 << 20
	// MaxDelay is the longest delay that a behaviour may order.
	MaxDelay = 24 * time.Hour
)

// Options configure the fake api. The zero value is usable: it listens on a free loopback port, answers every request
// with 200 and a small JSON body, charges nothing and keeps its ledger in memory.
type Options struct {
	// Listen is the TCP address to listen on. Empty means 127.0.0.1:0. The api obeys the orders of every client that
	// reaches it.
	Listen string
	// Key says where a request has its key. The zero value means the header X-Key.
	Key KeyFrom
	// Price is the charge for every billed call, in millionths of the currency.
	Price int64
	// CostHeader is the request header with the units that a call takes, a whole number of at least 1. Empty means
	// X-Cost. A request without the header costs 1.
	CostHeader string
	// Headers are recorded besides User-Agent, the idempotency headers and those that begin with X-.
	Headers []string
	// KeepArrivals is how many of the newest arrivals stay in memory, at about half a KiB each. Zero means 262,144.
	KeepArrivals int
	// KeepBody is how many bytes of each request's body are recorded, at most MaxKeepBody.
	KeepBody int
	// MaxBody is the longest accepted request body in bytes. Zero means 4 MiB. A longer body gets 413.
	MaxBody int64
	// MaxKeys is how many keys are distinguished. Zero means 1<<20. A call with a further key gets 503. The api
	// remembers as many idempotency keys, and forgets the oldest beyond that.
	MaxKeys int
	// Limit is the vendor's own limit. The zero value means none.
	Limit VendorLimit
	// Limits are the api's own limits of what calls use, at most 8.
	Limits []UseLimit
	// Vendor says by which vendor's documents the api answers, refuses and reports limits. Empty means the api's own
	// short answers. Vendor does not set Limit or Idempotency.
	Vendor Vendor
	// Idempotency says what happens to a repeated idempotency key. With the zero value the key is recorded, and the
	// call is carried out and billed again.
	Idempotency Idempotency
	// Latency is added to every call that is carried out. The zero value means none.
	Latency Latency
	// Script decides about each request without an order of its own. Nil means that all succeed, or answer as Vendor
	// does.
	Script Script
	// Ledger is the path of the append-only ledger file. Empty means memory only. The api continues an existing ledger:
	// its calls count as this api's own. Only one process may use it at a time.
	Ledger string
	// Announce receives the line "listening http://…" from Serve. Nil means os.Stdout. Start prints nothing.
	Announce io.Writer
}

// withDefaults returns the options with defaults, or all their errors.
func (o Options) withDefaults() (Options, error) {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Key == (KeyFrom{}) {
		o.Key = KeyFrom{Header: "X-Key"}
	}
	if o.CostHeader == "" {
		o.CostHeader = "X-Cost"
	}
	if o.Idempotency.Header == "" {
		o.Idempotency.Header = "Idempotency-Key"
	}
	if o.KeepArrivals == 0 {
		o.KeepArrivals = 1 << 18
	}
	if o.MaxBody == 0 {
		o.MaxBody = 4 << 20
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = 1 << 20
	}
	if o.Script == nil {
		o.Script = o.Vendor.script()
	}
	var wrong []error
	if o.KeepArrivals < 0 || o.KeepBody < 0 || o.MaxBody < 0 || o.MaxKeys < 0 || o.Price < 0 {
		wrong = append(wrong, errors.New("KeepArrivals, KeepBody, MaxBody, MaxKeys and Price must not be negative"))
	}
	if o.KeepBody > MaxKeepBody {
		wrong = append(wrong, fmt.Errorf("KeepBody must be at most %d", MaxKeepBody))
	}
	if len(o.Limits) > maxUseLimits {
		wrong = append(wrong, fmt.Errorf("there must be at most %d Limits", maxUseLimits))
	}
	for i := range o.Limits {
		wrong = append(wrong, o.Limits[i].validate())
	}
	wrong = append(wrong, o.Key.validate(), o.Limit.validate(), o.Idempotency.validate(), o.Latency.validate(), o.Vendor.validate())
	if err := errors.Join(wrong...); err != nil {
		return o, fmt.Errorf("fakeapi: options: %w", err)
	}
	return o, nil
}
