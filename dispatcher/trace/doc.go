// Package trace writes the spans of jobs, in the terms of OpenTelemetry. It knows neither streams nor calls, nor where
// spans are sent.
//
//	the producer's span          from the job's traceparent; without one the job begins a trace of its own
//	└─ process <api>             the job, from when the stream took it to its end; an error if it ended as a letter
//	   ├─ accept <api>           the intake: from the job's arrival to the answer
//	   ├─ wait <api>             in the bucket, before each call
//	   ├─ POST                   each call, by the conventions for HTTP clients; the api gets its id as the parent
//	   └─ settle <api>           until the result of the call is stored
//
// A job may wait for a month, and another replica may call it after a crash. So no span is kept open: each is written
// when it is over, with the time when it began. The ids are computed from the job's stream, the job's sequence in it,
// and the call's number. So all replicas agree on them. If a process finds a call that another process made, it writes
// the span that the api knows as its parent. A span that is written twice is the same span. The sampler decides for
// each span whether its trace is recorded, but its decision depends only on the producer's flag and the trace's id.
//
// A span may say only what the log may say: no payload, no header of the job, and of an address only the host.
package trace
