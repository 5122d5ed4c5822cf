package web

import (
	"net/http"
	"strings"
)

const (
	SomeTrace  = "0af7651916cd43dd8448eb211c80319c"
	SomeParent = "00-" + SomeTrace + "-b7ad6b7169203331-01"
)

// CheckExemplars requests the metrics as a Prometheus server that stores exemplars, and checks the exemplars.
func (c Client) CheckExemplars() {
	c.T.Helper()
	req, err := http.NewRequestWithContext(c.T.Context(), http.MethodGet, "http://"+c.Addr+"/metrics", nil)
	if err != nil {
		c.T.Fatal(err)
	}
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	text := c.read(req)
	for _, name := range []string{"weir_queue_wait_seconds", "weir_call_duration_seconds", "weir_dispatch_late_seconds"} {
		found := false
		for line := range strings.Lines(text) {
			found = found || strings.HasPrefix(line, name+`_bucket{api="pay"`) && strings.Contains(line, `# {trace_id="`+SomeTrace+`"}`)
		}
		if !found {
			c.T.Errorf("no exemplar leads from %s to the trace", name)
		}
	}
}
