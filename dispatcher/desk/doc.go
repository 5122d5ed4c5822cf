// Package desk answers operators: it describes apis, buckets and jobs (desk.go, listing.go), cancels jobs (cancel.go),
// and pauses keys (pause.go).
package desk
