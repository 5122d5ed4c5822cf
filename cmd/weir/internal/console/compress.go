package console

import (
	"compress/gzip"
	"net/http"
	"strings"
)

// worthwhile is how many bytes an answer must exceed to be compressed.
const worthwhile = 1 << 10

// gzipAccepted is a writer to a client that takes gzip. It writes as the one in it: only answers that are whole are compressed, by
// writeBody, and no streams.
type gzipAccepted struct{ http.ResponseWriter }

// Unwrap is for http.ResponseController.
func (g gzipAccepted) Unwrap() http.ResponseWriter { return g.ResponseWriter }

// accepting is w, or a gzipAccepted where the client takes gzip.
func accepting(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	for coding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(coding), ";")
		if strings.EqualFold(name, "gzip") && strings.Trim(strings.TrimPrefix(strings.TrimSpace(weight), "q="), "0.") != "" || strings.EqualFold(name, "gzip") && weight == "" {
			return gzipAccepted{w}
		}
	}
	return w
}

// writeBody writes an answer that is whole, compressed where that is worth it and the client takes it.
func writeBody(w http.ResponseWriter, status int, data []byte) {
	if len(data) <= worthwhile {
		w.WriteHeader(status)
		_, _ = w.Write(data) // the client has gone
		return
	}
	w.Header().Add("Vary", "Accept-Encoding")
	if _, ok := w.(gzipAccepted); !ok {
		w.WriteHeader(status)
		_, _ = w.Write(data) // the client has gone
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	to := gzip.NewWriter(w)
	_, _ = to.Write(data) // the client has gone
	_ = to.Close()
}
