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
	HeaderTrace      = "traceparent"
	HeaderTraceState = "tracestate"
	HeaderError      = "Nats-Service-Error" // of a refusal, as of any error of a NATS micro service
	HeaderErrorCode  = "Nats-Service-Error-Code"

	headerContentType = "Content-Type"
)
