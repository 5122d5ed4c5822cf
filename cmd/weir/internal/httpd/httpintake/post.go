package httpintake

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"weir/cmd/weir/internal/httpd/console"
	"weir/ingest"
)

// post passes a job to the intake and answers with the intake's answer.
func (d *Door) post(w http.ResponseWriter, r *http.Request, _ console.Actor) {
	code := d.answerPost(w, r)
	if code != 0 {
		d.answers.WithLabelValues(strconv.Itoa(code)).Inc()
	}
}

// answerPost answers a post and returns the status of the answer. It returns 0 if the client has gone.
func (d *Door) answerPost(w http.ResponseWriter, r *http.Request) int {
	api, key := r.PathValue("api"), r.PathValue("key")
	connection, now := http.NewResponseController(w), time.Now()
	_ = connection.SetReadDeadline(now.Add(d.bodyWait))
	_ = connection.SetWriteDeadline(now.Add(d.bodyWait + answerWait + sendWait))
	// The rest of a body must not be read as the next request. So the connection ends unless the whole body is read.
	w.Header().Set("Connection", "close")
	if !d.posts.TryAcquire(1) {
		return unavailable("as many other jobs are being posted as may, nothing was kept: try again").write(w)
	}
	defer d.posts.Release(1)
	if d.Intake == nil {
		return unavailable("this replica takes no jobs (its WEIR_ROLES name no ingest), nothing was kept: post to one that does").write(w)
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return refuse(http.StatusUnsupportedMediaType,
			"an encoded body would reach the api as it is, nothing was kept: send it plain, without Content-Encoding").write(w)
	}
	b, no := d.readBody(r, d.Intake.Largest(api))
	if no != nil {
		return no.write(w)
	}
	if b.oversize == 0 {
		w.Header().Del("Connection")
		// No deadline: if one passed, net/http would assume that the client has gone.
		_ = connection.SetReadDeadline(time.Time{})
	}
	message := ingest.Message{Key: key, Header: d.jobHeader(api, r.Header), Body: b.data, Oversize: b.oversize, HTTP: true, NewID: ingest.NewID()}
	// id is the one that the intake will use.
	id := cmp.Or(message.Header.Get(ingest.HeaderJobID), message.Header.Get(ingest.HeaderMsgID), message.NewID)
	answers := make(chan ingest.Answer, 1)
	d.Intake.Take(api, message, func(a ingest.Answer) {
		d.bodies.Release(b.room)
		answers <- a
	})
	ctx, cancel := context.WithTimeout(r.Context(), d.answerWait)
	defer cancel()
	select {
	case a := <-answers:
		return d.tell(w, api, key, &a)
	case <-ctx.Done():
		if r.Context().Err() != nil {
			return 0 // the intake accepts or refuses the job even if the client has gone, as on NATS
		}
		return tellUnsure(w, api, key, id)
	}
}

// tellUnsure answers 504, because the job may have been stored. Location says where to ask.
func tellUnsure(w http.ResponseWriter, api, key, job string) int {
	w.Header().Set("Location", locationOf(api, key, job))
	return unsure(job).write(w)
}

// locationOf returns the URL at which a client can ask about a job. key is "" if it is unknown.
func locationOf(api, key, job string) string {
	at := "/v1/jobs/" + url.PathEscape(api) + "/" + url.PathEscape(job)
	if key != "" {
		at += "?key=" + url.QueryEscape(key)
	}
	return at
}

// tell answers the client with the intake's answer.
func (d *Door) tell(w http.ResponseWriter, api, key string, a *ingest.Answer) int {
	switch {
	case a.Data == nil:
		return tellUnsure(w, api, key, a.Refusal.Job)
	case a.Refusal != nil:
		p := refused(a)
		if a.Refusal.Code == ingest.Throttled {
			if b, ok := d.Bucket(api, p.Key); ok {
				limitHeaders(w.Header(), b, 0, p.RetryAfterMS)
			}
		}
		return p.write(w)
	}
	h, receipt := w.Header(), a.Receipt
	h.Set("Location", locationOf(api, receipt.Key, receipt.Job))
	if b, ok := d.Bucket(api, receipt.Key); ok {
		limitHeaders(h, b, max(0, b.Capacity-int64(receipt.Position)), int64(receipt.Position)*b.Interval.Milliseconds())
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write(append(a.Data, '\n')) // an error means that the client has gone
	return http.StatusAccepted
}
