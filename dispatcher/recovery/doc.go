// Package recovery decides what becomes of a job that was found in a stream when its partition was taken over.
//
// Judge is a pure function. It takes what markers, ledger and results say about a job (Found), and returns the job's
// Fate. The caller calls it again when a lookup has found more. Mend is a pure function, too: it decides what to do
// about a lost call. Such a call may have been made, and nothing that is stored says what came of it. The package knows
// neither streams nor the schedule. cases_test.go names every case.
//
// # What must hold
//
//   - If a job may have been called and no outcome of that call is recorded, its fate is never Waits. Only a note of
//     the call's own process proves that a call with an intent was not made.
//   - A job with a result is not called again.
//   - A job that the api has accepted is not called again, unless another owner has taken its call for lost and has
//     begun another one under the same idempotency key.
//   - A job that was ending with another job's answer was not called before that. It ends with its result, or waits
//     again.
//   - A record that says done, or reused, proves that the result is stored: it is written after the result.
//   - An end that a marker or a record contains is final, unless a call may have begun after it, or it is
//     another job's answer.
package recovery
