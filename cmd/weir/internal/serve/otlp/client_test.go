package otlp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/ingest/await"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// upload sends one span to a receiver that gives these answers to its first requests, and 200 to every later one. It
// returns the number of requests and of refused spans.
func upload(t *testing.T, answers ...http.HandlerFunc) (requests int, refused int, err error) {
	t.Helper()
	var n atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i := int(n.Add(1)); i <= len(answers) {
			answers[i-1](w, r)
		}
	}))
	defer receiver.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", receiver.URL+"/swordfish?token=swordfish")
	s, err := readSettings()
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(s, "test", func(spans int) { refused += spans })
	err = c.UploadTraces(await.Context(t, "spans to be sent"), []*tracepb.ResourceSpans{{SchemaUrl: "x"}})
	return int(n.Load()), refused, err
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// TestWhatIsSentAgain checks that the client retries after answers that the protocol calls retryable, and after no
// others. No error contains more of the address than its host.
func TestWhatIsSentAgain(t *testing.T) {
	for _, c := range []struct {
		answers  []http.HandlerFunc
		requests int
		fails    bool
	}{
		{nil, 1, false},
		{[]http.HandlerFunc{status(503)}, 2, false},
		{[]http.HandlerFunc{status(429)}, 2, false},
		{[]http.HandlerFunc{status(400)}, 1, true},
		{[]http.HandlerFunc{status(500)}, 1, true},
		{[]http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}}, 1, true},
	} {
		requests, _, err := upload(t, c.answers...)
		if requests != c.requests || (err != nil) != c.fails {
			t.Errorf("%d requests, not %d: %v", requests, c.requests, err)
		}
		if err != nil && strings.Contains(err.Error(), "swordfish") {
			t.Errorf("the address is told: %v", err)
		}
	}
}

// TestRefusedSpansAreCounted checks that spans count as refused if the receiver's answer says that it has thrown them
// away.
func TestRefusedSpansAreCounted(t *testing.T) {
	answer := []byte{0x0a, 0x07, 0x08, 0x03, 0x12, 0x03, 'w', 'h', 'y'} // partial_success {rejected_spans: 3, error_message: "why"}
	_, refused, err := upload(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) })
	if err != nil || refused != 3 {
		t.Errorf("%d refused, %v", refused, err)
	}
	for _, torn := range [][]byte{nil, {0x0a}, {0x0a, 0xff}, answer[:4], {0xff, 0xff, 0xff}} {
		rejectedSpans(torn)
	}
}

// TestStopEndsARequest checks that a receiver that hangs does not delay the end of the process.
func TestStopEndsARequest(t *testing.T) {
	hanging, done := make(chan struct{}, 1), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		hanging <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-done:
		}
	}))
	defer receiver.Close()
	defer close(done)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	s, err := readSettings()
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(s, "test", func(int) {})
	ended := make(chan error, 1)
	go func() { ended <- c.UploadTraces(context.Background(), nil) }()
	await.Receive(t, "a request", hanging)
	_ = c.Stop(t.Context())
	if err := await.Receive(t, "the request's end", ended); err == nil {
		t.Error("a request without an answer is no error")
	}
}

// TestSettingsAreTheUsualOnes checks the variables of the specification: those for traces alone win over the general
// ones. An error contains no value that may be secret.
func TestSettingsAreTheUsualOnes(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want string // the address, or part of the error
	}{
		{map[string]string{"ENDPOINT": "http://host:4318"}, "http://host:4318/v1/traces"},
		{map[string]string{"ENDPOINT": "https://host/base/"}, "https://host/base/v1/traces"},
		{map[string]string{"ENDPOINT": "http://other", "TRACES_ENDPOINT": "http://host/mine"}, "http://host/mine"},
		{map[string]string{"ENDPOINT": "http://host", "PROTOCOL": "http/protobuf"}, "http://host/v1/traces"},
		{map[string]string{"ENDPOINT": "http://host", "PROTOCOL": "grpc"}, "http/protobuf only"},
		{map[string]string{"ENDPOINT": "http://host", "PROTOCOL": "grpc", "TRACES_PROTOCOL": "http/protobuf"}, "http://host/v1/traces"},
		{map[string]string{"ENDPOINT": "swordfish:4318"}, "is not an address"},
		{map[string]string{"ENDPOINT": "http://user:swordfish@%zz"}, "is not an address"},
		{map[string]string{"ENDPOINT": "http://host", "HEADERS": "swordfish"}, "not of the form"},
		{map[string]string{"ENDPOINT": "http://host", "TIMEOUT": "10s"}, "milliseconds"},
		{map[string]string{"ENDPOINT": "http://host", "COMPRESSION": "zstd"}, "gzip or none"},
		{map[string]string{"ENDPOINT": "http://host", "CERTIFICATE": "/does/not/exist"}, "OTEL_EXPORTER_OTLP_CERTIFICATE"},
	} {
		t.Run("", func(t *testing.T) {
			for name, value := range c.env {
				t.Setenv("OTEL_EXPORTER_OTLP_"+name, value)
			}
			if !wanted() {
				t.Error("traces are not wanted")
			}
			s, err := readSettings()
			switch {
			case err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "swordfish")):
				t.Error(err)
			case err == nil && s.endpoint.String() != c.want:
				t.Errorf("%v: sent to %s", c.env, s.endpoint)
			}
		})
	}
	t.Run("headers", func(t *testing.T) {
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x=1=2")
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "250")
		s, err := readSettings()
		if err != nil || s.header.Get("Api-Key") != "a b" || s.header.Get("X") != "1=2" || s.timeout != 250*time.Millisecond || s.endpoint.String() != "http://localhost:4318/v1/traces" {
			t.Errorf("%+v, %v", s, err)
		}
	})
	for _, off := range []map[string]string{
		{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://host", "OTEL_SDK_DISABLED": "true"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://host", "OTEL_TRACES_EXPORTER": "none"},
	} {
		t.Run("off", func(t *testing.T) {
			for name, value := range off {
				t.Setenv(name, value)
			}
			if wanted() {
				t.Errorf("%v: traces are wanted", off)
			}
		})
	}
}

// TestUnaskedSwitch checks that a receiver that switches to another protocol and then sends nothing delays nothing.
func TestUnaskedSwitch(t *testing.T) {
	requests, _, err := upload(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"))
	})
	if requests != 1 || err == nil {
		t.Errorf("%d requests: %v", requests, err)
	}
}
