package client

// The headers of a job and of its answer.
const (
	HeaderMsgID      = "Nats-Msg-Id"
	HeaderJobID      = "Weir-Job-Id"
	HeaderAPI        = "Weir-Api"
	HeaderKey        = "Weir-Key"
	HeaderMethod     = "Weir-Method"
	HeaderPath       = "Weir-Path"
	HeaderQuery      = "Weir-Query"
	HeaderForward    = "Weir-Header-"
	HeaderDeadline   = "Weir-Deadline"
	HeaderNotBefore  = "Weir-Not-Before"
	HeaderPriority   = "Weir-Priority" // high, normal or low
	HeaderCost       = "Weir-Cost"
	HeaderReplyTo    = "Weir-Reply-To"
	HeaderThrottled  = "Weir-On-Throttled" // Retry, or nothing
	HeaderBatch      = "Weir-Batch"        // how many jobs a message has; such a message is a batch
	HeaderTrace      = "traceparent"
	HeaderTraceState = "tracestate"
	HeaderBaggage    = "baggage"
	HeaderError      = "Nats-Service-Error" // of a refusal, as in any NATS micro service
	HeaderErrorCode  = "Nats-Service-Error-Code"

	headerContentType = "Content-Type"
)

// Retry is the value of Weir-On-Throttled. With it, a producer keeps a throttled job and submits it again, so the
// refusal leaves no dead letter.
const Retry = "retry"
