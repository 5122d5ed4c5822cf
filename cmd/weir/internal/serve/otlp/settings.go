package otlp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// settings say where and how spans are sent.
type settings struct {
	endpoint *url.URL
	header   http.Header // may contain tokens: must never be logged
	gzip     bool
	timeout  time.Duration // of one request
	tls      *tls.Config
	queue    int // spans that may wait
}

// The defaults of OpenTelemetry's specification.
const (
	defaultEndpoint = "http://localhost:4318"
	defaultTimeout  = 10 * time.Second
	defaultQueue    = 2048
	mostQueue       = 1 << 17 // a span takes 2 to 4 KB
	tracesPath      = "/v1/traces"
)

// variable returns OTEL_EXPORTER_OTLP_TRACES_<name>, or else OTEL_EXPORTER_OTLP_<name>.
func variable(name string) string {
	if v := strings.TrimSpace(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_" + name)); v != "" {
		return v
	}
	return strings.TrimSpace(os.Getenv("OTEL_EXPORTER_OTLP_" + name))
}

// wanted reports whether the environment asks for traces. It does so by an endpoint, or by the exporter otlp.
func wanted() bool {
	exporter := strings.ToLower(strings.TrimSpace(os.Getenv("OTEL_TRACES_EXPORTER")))
	if strings.EqualFold(strings.TrimSpace(os.Getenv("OTEL_SDK_DISABLED")), "true") || exporter != "" && exporter != "otlp" {
		return false
	}
	return variable("ENDPOINT") != "" || exporter == "otlp"
}

// readSettings reads the environment. Its errors contain no value that may be a secret.
func readSettings() (*settings, error) {
	s := &settings{timeout: defaultTimeout, queue: defaultQueue, header: http.Header{}}
	if p := variable("PROTOCOL"); p != "" && p != "http/protobuf" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q, but weir supports http/protobuf only: set that, and the receiver's port for it (4318)", clip(p))
	}
	var err error
	if s.endpoint, err = readEndpoint(); err != nil {
		return nil, err
	}
	switch c := variable("COMPRESSION"); c {
	case "", "none":
	case "gzip":
		s.gzip = true
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_COMPRESSION is %q, and must be gzip or none", clip(c))
	}
	if v := variable("TIMEOUT"); v != "" {
		ms, err := strconv.Atoi(v)
		if err != nil || ms <= 0 {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT is %q, and must be a whole number of milliseconds above 0", clip(v))
		}
		s.timeout = time.Duration(ms) * time.Millisecond
	}
	if v := strings.TrimSpace(os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE")); v != "" {
		if n, err := strconv.Atoi(v); err == nil && n > 0 {
			s.queue = min(n, mostQueue)
		}
	}
	if err := readHeaders(s.header, variable("HEADERS")); err != nil {
		return nil, err
	}
	s.tls, err = readTLS()
	return s, err
}

// readEndpoint returns the address for requests. It uses the endpoint for traces unchanged. If only the general
// endpoint is set, it adds /v1/traces to that.
func readEndpoint() (*url.URL, error) {
	text, name, whole := strings.TrimSpace(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")), "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", true
	if text == "" {
		text, name, whole = strings.TrimSpace(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")), "OTEL_EXPORTER_OTLP_ENDPOINT", false
	}
	if text == "" {
		text = defaultEndpoint
	}
	u, err := url.Parse(text)
	// The message leaves out the error of url.Parse, which contains the address.
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%s is not an address of the form http://host:4318 or https://host", name)
	}
	if !whole {
		u.Path = strings.TrimSuffix(u.Path, "/") + tracesPath
	}
	return u, nil
}

// readHeaders reads comma-separated name=value pairs, percent-encoded.
func readHeaders(h http.Header, text string) error {
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name, nameErr := url.PathUnescape(strings.TrimSpace(name))
		value, valueErr := url.PathUnescape(strings.TrimSpace(value))
		if !ok || name == "" || nameErr != nil || valueErr != nil {
			return errors.New("OTEL_EXPORTER_OTLP_HEADERS is not of the form name=value,name=value")
		}
		h.Set(name, value)
	}
	return nil
}

func readTLS() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := variable("CERTIFICATE"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: there is no certificate in %s", file)
		}
	}
	cert, key := variable("CLIENT_CERTIFICATE"), variable("CLIENT_KEY")
	if cert == "" && key == "" {
		return cfg, nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY: %w", err)
	}
	cfg.Certificates = []tls.Certificate{pair}
	return cfg, nil
}

// clip shortens the value of a variable for a message.
func clip(s string) string {
	if len(s) > 32 {
		return s[:32] + "…"
	}
	return s
}
