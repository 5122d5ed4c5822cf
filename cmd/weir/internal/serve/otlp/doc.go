// Package otlp sends spans to an OpenTelemetry receiver, by OTLP as protobuf over HTTP. The environment variables of
// OpenTelemetry configure it.
//
// A slow or unreachable receiver delays no call. The number of waiting spans is bounded (OTEL_BSP_MAX_QUEUE_SIZE, 2048
// by default); further spans are dropped and counted. If the process is killed, the waiting spans are lost: unlike the
// ledger, traces need not be complete.
//
// OpenTelemetry's SDK makes the spans, batches and samples. This package makes the request itself, because the SDK's
// package for HTTP links gRPC. The SDK's package adds 6.4 MB to a small stripped program, this package 1.4 MB.
package otlp
