// Package recovery judges what becomes of a job that was found in a stream when its partition was taken over.
//
// Judge is a function of values. It knows neither streams nor the schedule: what markers, ledger and results say
// of a job comes in, and its Fate comes out. It is called again when more was looked up. Mend is another such
// function: it decides what to do about a call whose result nothing stored tells.
//
// # What must hold
//
//   - A job that may have been called, and of whose call nothing is recorded, never Waits to be called as if nothing
//     had happened. That a call with an intent was not made is known only if its own process has written so.
//   - A job with a result is not called again.
//   - A record that says done proves that the result is stored: it is written after it.
//   - An end that was decided on, and that a marker or a record tells of, stays decided, unless a call may have
//     begun after it.
package recovery
