package web

// Secrets in the rig of OverHTTP: the api's credential, a token for each role, and a job's body.
const (
	CanaryHeader   = "canary-of-the-api-0123456789"
	CanaryProducer = "canary-of-producer-0123456789"
	CanaryViewer   = "canary-of-viewer-0123456789"
	CanaryOperator = "canary-of-operator-0123456789"
	CanaryBody     = "canary-of-a-body <script>alert(1)</script>"
)
