package intake

import (
	"bytes"
	"net/http"
	"testing"

	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/web"

	"github.com/nats-io/nats.go"
)

// posted is what the door answered.
type posted struct {
	status int
	header http.Header
	producer.Answer
	Type, Title, Detail string
	Status              int
	ErrCode             int `json:"err_code"`
}

// post hands a job in over HTTP. path is what stands behind /v1/jobs/.
func post(t testing.TB, addr, path string, body []byte, header nats.Header) posted {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/jobs/"+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		q.Header[name] = values
	}
	var p posted
	res := web.Ask(t, q, &p)
	p.status, p.header = res.StatusCode, res.Header
	return p
}

func nat(name, value string) nats.Header { return nats.Header{name: {value}} }
