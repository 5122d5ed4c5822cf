// Package httpapi is /api/v1 of weir serve. It offers over HTTP what the commands ask, and all commands of an operator.
//
//	table.go      all questions and commands: the routes, their roles, their bounds and the OpenAPI document follow from it
//	routes.go     what a line of the table is, and how a request is answered
//	request.go    what a request says; parameter.go, what its query may say; problem.go, what an error is answered with
//
// Each of the others is a noun, a value of its own that the table's lines point to:
//
//	overview.go   status, apis, limits, replicas, doctor, version: computed once for all clients that ask meanwhile
//	stream.go     snapshots and events as they come (server-sent events)
//	events.go     events that are kept
//	history.go    what flowed recently
//	buckets.go    an api's keys, one bucket
//	pauses.go     pause, resume
//	jobs.go       what became of a job; cancel
//	results.go    results
//	spend.go      what was spent
//	dead.go       dead letters: listed, counted, one of them, revealed, reconciled
//	selection.go  the selection of dead letters
//	purge.go      dead letters, deleted for good
//	transfer.go   dead letters, whole: exported and imported
//	redrives.go   redrives: planned, begun, shown, stopped, resumed
//	versions.go   the configuration: in force, before, compared
//	proposals.go  configurations that are checked, applied, rolled back
//	whatif.go     plans and verifications, within bounds
//
// The code of the command that asks the same question computes the answer. It uses a separate connection to NATS with
// weir's own rights. console.Access has checked the role of the request before. An answer has the fields that the
// command prints with --json. If a command prints one value per line, the answer is an object with a list of them, and
// with the parameter for the next page.
//
// A viewer never sees the body of a job, the value of a header that its producer chose, or a secret.
package httpapi
