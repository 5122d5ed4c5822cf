// Package limitstate keeps what the limits of an api have counted where a restart finds it.
//
// Limits are counted in the process or in Redis.
//
//   - In the process a checkpoint is stored every second (checkpoint.go). It claims what will be granted until the next one, and
//     nothing is granted that no stored checkpoint covers. So a crash makes weir count too much, never too little. Beside it an
//     account is kept of what the ledger says (account.go): once every partition has been recovered, it takes the place of the
//     claim.
//   - In Redis the state itself is shared by all replicas (sharedlimits.go). A mark in NATS says which state it was, so that a lost
//     one is not taken for a beginning. What a lost state had counted is added up from the ledger (sharedseed.go). Until that is
//     done quotas and budgets count as used up.
//   - Where a process counts again what Redis counted before, it begins with what the ledger says (handover.go).
//
// Beside that each api's levels are looked at every second, for metrics, for operators, and for the events of budgets (levels.go).
//
// What always holds: nothing that an api was called for is forgotten by its limits, whatever dies and whenever. Every error grants
// less: where the state cannot be stored or read, calls hold.
//
// The package does not know how a call is made, nor when: whoever calls by the limits is a Caller. It does not know the
// configuration file.
package limitstate
