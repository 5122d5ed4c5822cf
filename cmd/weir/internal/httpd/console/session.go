package console

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of browsers' sessions. A session ends sessionLasts after its login. A login beyond mostSessions ends the
// oldest session.
const (
	sessionCookie = "weir_session"
	sessionLasts  = 12 * time.Hour
	mostSessions  = 1000
)

// session is a login in force. It holds only the digest of its cookie, so a copy of the process's memory contains no
// cookie.
type session struct {
	id, token digest // of the cookie, and of the token shown at login
	expires   time.Time
}

// sessions holds the sessions of this process. Each replica has its own sessions, and they end with the process.
// sessions is safe for concurrent use. The zero value has no session.
type sessions struct {
	mu  sync.Mutex
	all []session // the session that ends first comes first
}

// begin adds a session for a token and returns the value of its cookie.
func (s *sessions) begin(token digest, now time.Time) string {
	secret := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	if len(s.all) >= mostSessions {
		s.all = slices.Delete(s.all, 0, len(s.all)-mostSessions+1)
	}
	s.all = append(s.all, session{digestOf(secret), token, now.Add(sessionLasts)})
	return secret
}

// find returns the token with which a session began. ok is false if there is no session with this cookie.
func (s *sessions) find(id digest, now time.Time) (token digest, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	for i := range s.all {
		if s.all[i].id.is(id) {
			token, ok = s.all[i].token, true
		}
	}
	return token, ok
}

func (s *sessions) end(id digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(one session) bool { return one.id.is(id) })
}

// forget drops ended sessions.
func (s *sessions) forget(now time.Time) {
	first := slices.IndexFunc(s.all, func(one session) bool { return now.Before(one.expires) })
	if first < 0 {
		first = len(s.all)
	}
	s.all = slices.Delete(s.all, 0, first)
}

// Session is the user of a request, as weir identifies it.
type Session struct {
	Name  string `json:"name"`  // of the token; "" if no token is required
	Role  Role   `json:"role"`  // what the user may do
	Login bool   `json:"login"` // whether weir requires a token
}

// Login is the request that begins a session.
type Login struct {
	Token string `json:"token"`
}

// Bounds of logins, which need no token: bytes of a request, and requests at a time. Each request takes headerTime at
// most.
const (
	maxLogin   = 4 << 10
	mostLogins = 32
)

// SessionRoutes returns the routes by which browsers log in and out.
func SessionRoutes(a *Access) []Route {
	bare := func(serve http.HandlerFunc) func(http.ResponseWriter, *http.Request, Actor) {
		return func(w http.ResponseWriter, r *http.Request, _ Actor) { serve(w, r) }
	}
	return []Route{
		{
			Method: "POST", Path: "/api/v1/login", Role: Anybody, MaxBody: maxLogin, Time: headerTime, AtOnce: mostLogins,
			Serve: bare(a.login),
		},
		{Method: "POST", Path: "/api/v1/logout", Role: Anybody, MaxBody: maxLogin, Serve: bare(a.logout)},
		{Method: "GET", Path: "/api/v1/session", Role: Anybody, Serve: bare(a.whoami)},
	}
}

// login begins a session. A browser sends its token once, and from then on a cookie with each request.
func (a *Access) login(w http.ResponseWriter, r *http.Request) {
	var given Login
	if p := ReadJSON(r, &given); p != nil {
		p.Write(w)
		return
	}
	now := time.Now()
	token := digestOf(strings.TrimSpace(given.Token))
	who := Actor{Role: a.byUser(r)}
	if !a.open() {
		who = a.bearer(token, now)
	}
	if who.Role == Anybody { // checked before the bound, so that wrong tokens of other clients do not shut out a user
		if !a.failures.take(remote(r), now) {
			tooManyFailures().Write(w)
			return
		}
		NewProblem(http.StatusUnauthorized, "no user has this token").Write(w)
		return
	}
	if !a.open() {
		http.SetCookie(w, a.cookie(r, a.sessions.begin(token, now), int(sessionLasts/time.Second)))
	}
	WriteJSON(w, http.StatusOK, a.session(who))
}

// logout ends the session of the cookie.
func (a *Access) logout(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(sessionCookie); err == nil {
		a.sessions.end(digestOf(cookie.Value))
	}
	http.SetCookie(w, a.cookie(r, "", -1))
	w.WriteHeader(http.StatusNoContent)
}

// whoami answers with the session of the request's user. A client without a token gets the role anybody.
func (a *Access) whoami(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		if _, p := a.May(r, AnyRole); p != nil {
			p.Write(w)
			return
		}
	}
	WriteJSON(w, http.StatusOK, a.session(a.Who(r)))
}

func (a *Access) session(who Actor) Session { return Session{who.Name, who.Role, !a.open()} }

// cookie returns a cookie that no script can read, and that browsers never send from pages of other sites. A proxy's
// header X-Forwarded-Proto can only make the cookie stricter.
func (a *Access) cookie(r *http.Request, value string, seconds int) *http.Cookie {
	return &http.Cookie{
		Name: sessionCookie, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	}
}
