// Package limitstate stores what the limits of an api have counted, so that the next start continues from there.
//
// Either the process or Redis counts the limits.
//
//   - In the process a checkpoint is stored every second (checkpoint.go). It covers what will be granted until the next
//     one. A slot is granted only if a stored checkpoint covers it, so after a crash weir counts too much, never too
//     little. Beside the checkpoint an account holds what the ledger's records charge (account.go). Once every partition
//     is recovered, the account's sum replaces the checkpoint's upper bound.
//   - In Redis all replicas share the state itself (sharedlimits.go). A mark in NATS identifies the state, so weir does
//     not take a lost state for a new one. What a lost state had counted is added up from the ledger (sharedseed.go).
//     Until then quotas and budgets count as used up.
//   - An account's limits, which several apis share, have a checkpoint and an account of their own in the process
//     (unit.go, pools.go). In Redis the apis of an account have one state and one mark (accountmark.go).
//   - If the process takes over the counting from Redis, it begins with what the ledger says (handover.go).
//
// The package also reads the levels of each api's limits every second, for metrics, for operators, and for the events
// of budgets (levels.go).
//
// Invariants: the limits forget no call, whichever process or server dies, and whenever it dies. Every error grants
// less: while the state cannot be stored or read, calls wait.
//
// The package does not know how or when a call is made: the code that makes calls implements Caller. The package does
// not read the configuration file.
package limitstate
