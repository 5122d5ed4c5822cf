package fakeapi

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Bounds that are not configured.
const (
	maxHeaderBytes = 64 << 10
	// MaxAnswer is the longest answer body that can be ordered, in bytes.
	MaxAnswer = 1 << 30
	// MaxKeepBody is the most that can be recorded of a request's body, in bytes.
	MaxKeepBody = 4 << 20
	// MaxDelay is the longest delay that can be ordered.
	MaxDelay = 24 * time.Hour
)

// Options configure the fake api. The zero value is usable: it listens on a free loopback port, answers every request
// with 200 and a small JSON body, charges nothing and keeps its ledger in memory.
type Options struct {
	// Listen is the TCP address to listen on, by default 127.0.0.1:0. The api obeys orders from every client that
	// reaches it.
	Listen string
	// Key says where the key of a request is found. Zero value: the header X-Key.
	Key KeyFrom
	// Price is charged for every billed call, in millionths of the currency.
	Price int64
	// CostHeader is the request header holding the units a call takes, a whole number of at least 1. By default X-Cost;
	// a request without it costs 1.
	CostHeader string
	// Headers are recorded besides User-Agent, the idempotency header and those beginning X-.
	Headers []string
	// KeepArrivals is how many of the newest arrivals stay in memory, by default 262,144 (about half a KiB each).
	KeepArrivals int
	// KeepBody is how many bytes of every request body are recorded, by default none; at most MaxKeepBody.
	KeepBody int
	// MaxBody is the longest accepted request body in bytes, by default 4 MiB. A longer one is answered 413.
	MaxBody int64
	// MaxKeys is how many keys are told apart, by default 1<<20; a call with one key more is answered 503. As many
	// idempotency keys are remembered; beyond that the oldest are forgotten.
	MaxKeys int
	// Limit is the vendor's own limit. Zero value: none.
	Limit VendorLimit
	// Limits are the api's own limits of what calls use, at most 8.
	Limits []UseLimit
	// Vendor is whose answers, refusals and limit headers the api has, by the vendor's documents. Empty: its own short
	// ones. It does not set Limit or Idempotency.
	Vendor Vendor
	// Idempotency says what happens to a repeated idempotency key. Zero value: it is noted, carried out and billed
	// again.
	Idempotency Idempotency
	// Latency is added to every call that is carried out. Zero value: none.
	Latency Latency
	// Script decides about each request that has no order of its own. Nil: all succeed.
	Script Script
	// Ledger is the path of the append-only ledger file. Empty: memory only. An existing ledger is continued: its calls count
	// as this api's own. One process at a time.
	Ledger string
	// Announce gets the line "listening http://…" from Serve, by default os.Stdout. Start prints nothing.
	Announce io.Writer
}

// withDefaults returns the options to run with, or everything that is wrong with them.
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
