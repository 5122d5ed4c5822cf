package producer

import (
	"encoding/json"
	"fmt"
	"strings"

	"weir/ingest"
	"weir/ingest/await"
)

// SendNotBefore submits a job that must not be called before notBefore, if that is not "". name is the job's id, path
// and body.
func (p Producer) SendNotBefore(key, name, notBefore string, more ...string) Answer {
	p.T.Helper()
	h := map[string]string{"Nats-Msg-Id": name, "Weir-Path": "/" + name}
	if notBefore != "" {
		h[ingest.HeaderNotBefore] = notBefore
	}
	for i := 0; i+1 < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return p.Submit("weir.jobs.pay."+key, []byte(name), h)
}

// RefuseNotBefore submits jobs that could never be called, and fails unless weir refuses them.
func (p Producer) RefuseNotBefore() {
	p.T.Helper()
	for notBefore, why := range map[string]string{"2h": "could never be called", "8784h1s": "366 days", "-1s": "negative", "tomorrow": "RFC 3339"} {
		a := p.SendNotBefore("refused", "never", notBefore, "Weir-Deadline", "1h")
		if a.Error == nil || a.Error.ErrCode != 20400 || a.Letter == 0 || !strings.Contains(a.Error.Description, why) || !strings.Contains(a.Error.Description, ingest.HeaderNotBefore) {
			p.T.Errorf("not before %s: %+v", notBefore, a.Error)
		}
	}
}

// FillNotBefore fills a bucket with jobs that must wait for an hour, and submits one more.
func (p Producer) FillNotBefore() {
	p.T.Helper()
	for n := range 6 {
		if a := p.SendNotBefore("full", fmt.Sprint("hour-", n), "1h"); a.Error != nil {
			p.T.Fatalf("%d: %+v", n, a.Error)
		}
	}
	msg, err := p.NC.Request("weir.jobs.pay.full", nil, await.Patience)
	if err != nil {
		p.T.Fatal(err)
	}
	var a struct {
		Error *struct{ Code int }
		Retry int64 `json:"retry_after_ms"`
	}
	if err := json.Unmarshal(msg.Data, &a); err != nil || a.Error == nil || a.Error.Code != 429 || a.Retry < 3_500_000 {
		p.T.Errorf("a bucket full of jobs of the next hour answers %s", msg.Data)
	}
}
