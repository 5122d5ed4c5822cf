// Package otlp sends spans to an OpenTelemetry receiver, over OTLP as protobuf in HTTP, as the usual environment variables say.
//
// A receiver that is slow or away costs no call anything. What waits to be sent is bounded (OTEL_BSP_MAX_QUEUE_SIZE, 2048 spans); what
// comes beyond it is dropped and counted. Spans that wait when the process is killed are lost: traces are no ledger.
//
// The spans themselves, the batches and the sampling are OpenTelemetry's own SDK. The request is made here: its package for HTTP links
// gRPC, which made a small program 6.4 MB larger where this makes it 1.4 (stripped).
package otlp
