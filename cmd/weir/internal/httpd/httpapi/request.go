package httpapi

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/ingest"
)

// request is an HTTP request whose query was checked.
type request struct {
	*http.Request

	who        console.Actor
	connection *http.ResponseController
	asked      time.Time
	given      url.Values
}

// word returns a parameter as the client sent it, "" if absent.
func (r *request) word(name string) string { return r.given.Get(name) }

// number returns the value of p, or its default if absent. parse has checked its bounds.
func (r *request) number(p parameter) int {
	if n, err := strconv.Atoi(r.given.Get(p.name)); err == nil {
		return n
	}
	return p.usual
}

// seq returns a parameter that is a sequence, 0 if absent.
func (r *request) seq(name string) (uint64, error) {
	value := r.given.Get(name)
	if value == "" {
		return 0, nil
	}
	seq, err := strconv.ParseUint(value, 10, 64)
	if err != nil || seq == 0 {
		return 0, badRequest("%s is the number of a message, above 0", name)
	}
	return seq, nil
}

// time returns a parameter that is a time, zero if absent. parse has checked its text.
func (r *request) time(name string) time.Time {
	at, err := deadview.ReadTime(r.given.Get(name), r.asked)
	if err != nil {
		return time.Time{}
	}
	return at
}

// duration returns a parameter that is a duration, 0 if absent.
func (r *request) duration(name string) (time.Duration, error) {
	text := r.word(name)
	if text == "" {
		return 0, nil
	}
	d, err := grammar.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, badRequest("%s %q is not a duration such as 200ms or 30s", name, text)
	}
	return d, nil
}

// key returns a request's key, from its path or its query.
func (r *request) key() (string, error) {
	key := r.PathValue("key")
	if key == "" {
		key = r.word("key")
	}
	if err := ingest.CheckKey(key); err != nil {
		return "", badRequest("key: %v", err)
	}
	return key, nil
}

// keyOf returns the parameters api and key. It refuses a key without an api.
func (r *request) keyOf() (api, key string, err error) {
	api, key = r.word("api"), r.word("key")
	if key != "" && api == "" {
		return "", "", badRequest("key needs api: keys belong to apis")
	}
	return api, key, nil
}

// job returns the job's id, which is in the path.
func (r *request) job() (string, error) {
	id := r.PathValue("id")
	if err := ingest.CheckJobID(id); err != nil {
		return "", badRequest("id: %v", err)
	}
	return id, nil
}

// read decodes the JSON body of a request.
func read[T any](r *request) (T, error) {
	var said T
	if p := console.ReadJSON(r.Request, &said); p != nil {
		return said, p
	}
	return said, nil
}

// readIfAny decodes the JSON body of a request. It returns a zero value if the body is empty.
func readIfAny[T any](r *request) (T, error) {
	if r.ContentLength == 0 {
		var nothing T
		return nothing, nil
	}
	return read[T](r)
}
