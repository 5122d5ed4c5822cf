// Package limitstate keeps what the limits of an api have counted for the next start.
//
// Limits are counted in the process or in Redis.
//
//   - In the process a checkpoint is stored every second (checkpoint.go). It claims what will be granted until the next one, and
//     nothing is granted that no stored checkpoint covers. So a crash makes weir count too much, never too little. Beside it an
//     account is kept of what the ledger says (account.go): once every partition has been recovered, it replaces the claim.
//   - In Redis the state itself is shared by all replicas (sharedlimits.go). A mark in NATS identifies the state, so that a lost
//     state is not taken for a new one. What a lost state had counted is added up from the ledger (sharedseed.go). Until that is
//     done quotas and budgets count as used up.
//   - The limits of an account, which several apis share, have a checkpoint and an account of their own in the process
//     (unit.go, pools.go). In Redis the apis of an account have one state and one mark (accountmark.go).
//   - If the process takes over the counting from Redis, it begins with what the ledger says (handover.go).
//
// In addition the levels of each api's limits are read every second, for metrics, for operators, and for the events of
// budgets (levels.go).
//
// What always holds: the limits forget nothing that an api was called for, whatever dies and whenever. Every error
// grants less: while the state cannot be stored or read, calls wait.
//
// The package does not know how or when a call is made: the code that calls by the limits is a Caller. It does not know
// the configuration file.
package limitstate
