package console

import (
	"compress/gzip"
	"net/http"
	"strings"
)

// worthwhile is the length in bytes up to which WriteBody does not compress an answer.
const worthwhile = 1 << 10

// gzipAccepted marks the writer for a client that accepts gzip. It does not compress: WriteBody compresses complete
// answers, and streams stay uncompressed.
type gzipAccepted struct{ http.ResponseWriter }

// Unwrap returns the wrapped writer, for http.ResponseController.
func (g gzipAccepted) Unwrap() http.ResponseWriter { return g.ResponseWriter }

// accepting returns w, wrapped in a gzipAccepted if the client accepts gzip.
func accepting(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	for coding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(coding), ";")
		if strings.EqualFold(name, "gzip") && strings.Trim(strings.TrimPrefix(strings.TrimSpace(weight), "q="), "0.") != "" || strings.EqualFold(name, "gzip") && weight == "" {
			return gzipAccepted{w}
		}
	}
	return w
}

// WriteBody writes a complete answer. It compresses an answer of more than worthwhile bytes if the client accepts gzip.
func WriteBody(w http.ResponseWriter, status int, data []byte) {
	if len(data) <= worthwhile {
		w.WriteHeader(status)
		_, _ = w.Write(data) // an error means that the client has gone
		return
	}
	w.Header().Add("Vary", "Accept-Encoding")
	if _, ok := w.(gzipAccepted); !ok {
		w.WriteHeader(status)
		_, _ = w.Write(data) // an error means that the client has gone
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	to := gzip.NewWriter(w)
	_, _ = to.Write(data) // an error means that the client has gone
	_ = to.Close()
}
