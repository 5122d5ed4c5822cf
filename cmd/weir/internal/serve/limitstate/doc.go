// Package limitstate stores what the limits of an api have counted, so that the next start goes on from there.
//
// Limits are counted in the process or in Redis.
//
//   - In the process a checkpoint is stored every second (checkpoint.go). It claims what will be granted until the next
//     one. A slot is granted only if a stored checkpoint covers it, so a crash makes weir count too much, never too
//     little. Beside the checkpoint an account keeps what the ledger says (account.go). Once every partition is
//     recovered, the account replaces the claim.
//   - In Redis all replicas share the state itself (sharedlimits.go). A mark in NATS identifies the state, so weir does
//     not take a lost state for a new one. What a lost state had counted is added up from the ledger (sharedseed.go).
//     Until then quotas and budgets count as used up.
//   - An account's limits, which several apis share, have a checkpoint and an account of their own in the process
//     (unit.go, pools.go). In Redis the apis of an account have one state and one mark (accountmark.go).
//   - If the process takes over the counting from Redis, it begins with what the ledger says (handover.go).
//
// In addition the levels of each api's limits are read every second, for metrics, for operators, and for the events of
// budgets (levels.go).
//
// Invariants: the limits forget no call, whatever dies and whenever. Every error grants less: while the state cannot be
// stored or read, calls wait.
//
// The package does not know how or when a call is made: the code that makes calls implements Caller. The package does
// not read the configuration file.
package limitstate
