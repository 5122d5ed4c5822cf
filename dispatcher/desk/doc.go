// Package desk answers requests of operators: it describes apis, buckets and jobs (desk.go), cancels jobs (cancel.go),
// and pauses keys (pause.go).
package desk
