// Package api is /api/v1 of weir serve: every question that a command asks, and every word of an operator, over HTTP.
//
//	table.go      all questions and words: from it follow the ways in, who may use them, their bounds and the OpenAPI document
//	routes.go     what a line of the table is, and how one is answered
//	request.go    what a request says; parameter.go, what its query may say; problem.go, what an error is answered with
//
// Each of the others is a noun, a value of its own that the table's lines point to:
//
//	overview.go   status, apis, limits, replicas, doctor, version: worked out once for all who ask
//	stream.go     snapshots and events as they come (server-sent events)
//	events.go     events that are kept
//	history.go    what flowed in the last while
//	buckets.go    an api's keys, one bucket
//	pauses.go     pause, resume
//	jobs.go       what became of a job; cancel
//	results.go    results
//	spend.go      what was spent
//	dead.go       dead letters: listed, counted, one of them, revealed, reconciled
//	selection.go  which dead letters are meant
//	purge.go      dead letters, deleted for good
//	transfer.go   dead letters, whole: exported and imported
//	redrives.go   redrives: planned, begun, looked at, stopped, resumed
//	versions.go   the configuration: in force, before, compared
//	proposals.go  configurations that are checked, applied, rolled back
//	whatif.go     plans and verifications, within bounds
//
// A question is answered by the code of the command that asks the same, over a connection of its own to NATS with the rights of weir
// itself: what a request may do is settled before, by its role (console.Access). So an answer has the fields that the command prints with
// --json; what a command prints line by line is a list in an object here, with what leads to the next page.
//
// What a viewer is told holds no body of a job, no value of a header that its producer chose, and no secret.
package api
