package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// bearing lets a request through that bears the token, or any where there is none.
func (s *Server) bearing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.bears(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
			answer(w, http.StatusUnauthorized, "this needs the token of WEIR_HTTP_TOKEN: Authorization: Bearer <token>")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bears compares digests, so that the time it takes tells neither the token nor its length.
func (s *Server) bears(r *http.Request) bool {
	if s.opts.Token == "" {
		return true
	}
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got, want := sha256.Sum256([]byte(strings.TrimSpace(given))), sha256.Sum256([]byte(s.opts.Token))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}
