// Package bucket is the leaky bucket: the limits of an api, and the slots they grant.
//
// A Store grants slots: the times at which calls may start. It reserves a slot under the key's own rate and all limits
// that an api's keys share, all of them at once or none. Memory does so in this process, redisstore for many processes.
// storetest is the suite that both pass.
//
//	limit.go, rules.go          what is configured: rates, quotas, budgets, calls in flight, keys, admission
//	gcra.go                     the arithmetic: GCRA in integer microseconds
//	pace.go                     how a rate becomes an interval that no window of arrivals can break
//	carry.go                    what a changed rate takes over
//	quota.go, sliding.go        windows, quotas and money
//	left.go                     what the vendor says is left, with its proof
//	engine.go, keys.go          one reservation over all limits; the table of keys in debt
//	pool.go                     limits of an account, which the stores of several apis share
//	share.go                    a site's part of a limit, for sites without a common store
//	line.go, inturn.go          turns of the processes, and of the apis, that share limits
//	snapshot.go                 how a restart continues and never counts too little
//	admission.go                the limits that a job must pass when it comes in
//	checker.go, quality.go      recorded arrivals checked against the limits, exactly
//
// The package knows nothing of NATS, HTTP, letters or calls. Times are arguments, or come from a function that the
// caller passes.
//
// # What must hold
//
//   - A granted slot is within every limit, in any window, whatever was granted before.
//   - Every error path grants less, never more.
//   - A change of the rules never loosens a limit for what was granted before it.
//   - What the vendor says is left only ever holds calls longer (left.go has the rule).
//   - A call of an api with an account is reserved, settled and returned in the limits of the api and of the account in
//     one step.
package bucket
