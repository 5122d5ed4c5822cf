// Package recovery says what a job is that was found in a stream when its partition was taken over.
//
// Judge is one function of values. It knows neither streams nor the schedule: what markers, ledger and results say of a job
// comes in, and its Fate comes out; and again when more was looked up. Mend is another: what is done about a call of which nothing says what
// it brought.
//
// # What must hold
//
//   - A job that may have been called, and of whose call nothing is recorded, never Waits to be called as if nothing had been. That a
//     call with an intent was not made is known only where its own process has written so.
//   - A job with a result is not called again.
//   - A record that says done proves that the result is stored: it is written after it.
//   - What was decided on, an end that a marker or a record tells of, stays decided, unless a call may have begun after it.
package recovery
