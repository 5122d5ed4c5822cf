package weirtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"weir/cmd/weir/internal/serve/admin"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// SendNotBefore submits a job that must not be called before notBefore, if that is not "". name is the job's id, path
// and body.
func (r *Rig) SendNotBefore(key, name, notBefore string, more ...string) Answer {
	r.T.Helper()
	h := map[string]string{"Nats-Msg-Id": name, "Weir-Path": "/" + name}
	if notBefore != "" {
		h[ingest.HeaderNotBefore] = notBefore
	}
	for i := 0; i+1 < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return r.Submit("weir.jobs.pay."+key, []byte(name), h)
}

func (a Answer) Eta() time.Duration {
	if a.ETAms == nil {
		return -1
	}
	return time.Duration(*a.ETAms) * time.Millisecond
}

// RefuseNotBefore submits jobs that could never be called, and fails unless weir refuses them.
func (r *Rig) RefuseNotBefore() {
	r.T.Helper()
	for notBefore, why := range map[string]string{"2h": "could never be called", "8784h1s": "366 days", "-1s": "negative", "tomorrow": "RFC 3339"} {
		a := r.SendNotBefore("refused", "never", notBefore, "Weir-Deadline", "1h")
		if a.Error == nil || a.Error.ErrCode != 20400 || a.Letter == 0 || !strings.Contains(a.Error.Description, why) || !strings.Contains(a.Error.Description, ingest.HeaderNotBefore) {
			r.T.Errorf("not before %s: %+v", notBefore, a.Error)
		}
	}
}

// FillNotBefore fills a bucket with jobs that must wait for an hour, and submits one more.
func (r *Rig) FillNotBefore() {
	r.T.Helper()
	for n := range 6 {
		if a := r.SendNotBefore("full", fmt.Sprint("hour-", n), "1h"); a.Error != nil {
			r.T.Fatalf("%d: %+v", n, a.Error)
		}
	}
	msg, err := r.NC.Request("weir.jobs.pay.full", nil, Patience)
	if err != nil {
		r.T.Fatal(err)
	}
	var a struct {
		Error *struct{ Code int }
		Retry int64 `json:"retry_after_ms"`
	}
	if err := json.Unmarshal(msg.Data, &a); err != nil || a.Error == nil || a.Error.Code != 429 || a.Retry < 3_500_000 {
		r.T.Errorf("a bucket full of jobs of the next hour answers %s", msg.Data)
	}
}

// SeeNotBefore checks what weir shows of a key whose jobs wait for their earliest time.
func (r *Rig) SeeNotBefore(due time.Time) {
	r.T.Helper()
	var shown admin.KeyShown
	said, code := r.Command("show", "pay", "k", "--json")
	if err := json.Unmarshal([]byte(said), &shown); err != nil || code != 0 {
		r.T.Fatalf("%d %s", code, said)
	}
	if shown.Waits.For != schedule.WaitNotBefore || shown.Waits.Until == nil || shown.Waits.Until.Sub(due).Abs() > time.Millisecond || shown.WaitMS > 1000 {
		r.T.Errorf("the key waits for %+v, a job that came now %d ms", shown.Waits, shown.WaitMS)
	}
	var order []string
	for _, j := range shown.Next {
		order = append(order, j.Job+" "+string(j.Phase))
	}
	if got := strings.Join(order, ", "); got != "second not_before, third not_before, gone not_before, year not_before" {
		r.T.Errorf("shown: %s", got)
	}
	if said, _ := r.Command("show", "pay", "k"); !strings.Contains(said, "the time that its jobs asked for until") {
		r.T.Errorf("shown: %s", said)
	}
}
