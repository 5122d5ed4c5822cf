// Package api is /api/v1 of weir serve: every question that a command asks, and every word of an operator, over HTTP.
//
//	routes.go     the table from which the ways in, who may use them, their bounds and the OpenAPI document follow
//	request.go    parameters, and what an error is answered with
//	overview.go   status, apis, limits, replicas, doctor, version
//	buckets.go    an api's keys, one bucket
//	jobs.go       what became of a job; results
//	dead.go       dead letters: listed, counted, one of them
//	redrives.go   redrives: planned, begun, looked at, stopped, resumed
//	transfer.go   letters, whole: exported and imported
//	whatif.go     plans and verifications, within bounds
//	events.go     events that are kept
//	config.go     the configuration: in force, before, compared
//	words.go      what operators say: pause, resume, cancel, reveal, reconcile, purge, check, apply, roll back
//	stream.go     snapshots and events as they come (server-sent events)
//
// A question is answered by the code of the command that asks the same, over a connection of its own to NATS with the rights of weir
// itself: what a request may do is settled before, by its role (console.Access). So an answer has the fields that the command prints with
// --json; what a command prints line by line is a list in an object here, with what leads to the next page.
//
// What a viewer is told holds no body of a job, no value of a header that its producer chose, and no secret.
package api
