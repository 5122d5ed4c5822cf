// Package trace writes the spans of jobs, in the terms of OpenTelemetry. It knows neither streams nor calls, nor where spans go.
//
//	the producer's span          from the job's traceparent; without one the job begins a trace of its own
//	└─ process <api>             the job, from when the stream took it to its end; an error where it ended as a letter
//	   ├─ accept <api>           the intake: from the job's arrival to the answer
//	   ├─ wait <api>             in the bucket, before each call
//	   ├─ POST                   each call, by the conventions for HTTP clients; its id is what the api is told as parent
//	   └─ settle <api>           until what became of the call is stored
//
// A job may wait for a month, and be called by another replica after a crash. So no span is kept open: each is written when it is
// over, with the time when it began. The ids are worked out of where the job stands in which stream, and of the call's number. So all
// replicas agree on them, a process that finds a call which another left writes the span that the api knows as its parent, and what is
// written twice is the same span. Whether a trace is recorded the sampler decides anew each time; its word depends on nothing but the
// producer's flag and the trace's id.
//
// What a span says is what the log may say: no payload, no header of the job, and of an address the host alone.
package trace
