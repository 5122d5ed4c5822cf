package client

// The headers of a job, and of its answer.
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
	HeaderCost       = "Weir-Cost"
	HeaderReplyTo    = "Weir-Reply-To"
	HeaderThrottled  = "Weir-On-Throttled" // Retry, or nothing
	HeaderTrace      = "traceparent"
	HeaderTraceState = "tracestate"
	HeaderBaggage    = "baggage"
	HeaderError      = "Nats-Service-Error" // of a refusal, as of any error of a NATS micro service
	HeaderErrorCode  = "Nats-Service-Error-Code"

	headerContentType = "Content-Type"
)

// Retry is what Weir-On-Throttled says of a job whose producer keeps it and submits it again when it is throttled: then the refusal leaves
// no dead letter.
const Retry = "retry"
