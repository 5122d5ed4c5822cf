package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"weir/cmd/weir/internal/config"
)

// Role is what a request must be allowed to do.
type Role string

// The roles. Whoever is an operator may do everything.
const (
	Anybody  Role = "anybody" // also who shows nothing
	Known    Role = "known"   // whoever has any of the roles that follow
	Producer      = Role(config.RoleProducer)
	Viewer        = Role(config.RoleViewer)
	Operator      = Role(config.RoleOperator)
	Local    Role = "local" // another user of this machine, who bears no token: a producer and a viewer
)

// covers reports whether who has the role r may do what needs another.
func (r Role) covers(needed Role) bool {
	switch needed {
	case Anybody:
		return true
	case Known:
		return r == Producer || r == Viewer || r == Local || r == Operator
	case Producer, Viewer:
		if r == Local {
			return true
		}
	case Operator, Local:
	}
	return r == needed || r == Operator
}

// Actor is who makes a request.
type Actor struct {
	Name string // of the token; "" where nobody is asked who he is
	Role Role   // Anybody: nobody knows him
}

// String names an actor in events and in what operators are told.
func (a Actor) String() string {
	if a.Name == "" {
		return "somebody on this machine, over HTTP"
	}
	return a.Name + ", over HTTP"
}

// digest is what tokens and sessions are known by: comparing digests tells neither a secret nor its length.
type digest [sha256.Size]byte

func digestOf(text string) digest { return sha256.Sum256([]byte(text)) }

func (d digest) is(other digest) bool { return subtle.ConstantTimeCompare(d[:], other[:]) == 1 }

// EnvironmentToken is what the bearer of WEIR_HTTP_TOKEN is called.
const EnvironmentToken = "WEIR_HTTP_TOKEN"

// rereadTokens is how long the tokens of the configuration are taken for what they were: a rotated secret holds from then on.
const rereadTokens = time.Second

// Access says who makes a request and what he may do. It is safe for concurrent use.
//
// The tokens are that of the environment and those of the configuration in force. Where there is none of either, and only this machine
// can connect, whom weir runs as and root are operators, and its other users are what they are on the server inside. A token is shown with
// each request (Authorization: Bearer …), or once to begin a session, whose cookie browsers send.
type Access struct {
	own      digest // of the environment's token
	hasOwn   bool
	loopback bool                // only this machine can connect
	auth     config.NATSAuth     // whom a loopback address lets in that bears no token
	self     int                 // whom weir runs as
	named    func() *config.HTTP // in force; its answer may be nil
	sessions sessions
	failures failures

	mu    sync.Mutex // of what follows
	read  time.Time
	of    *config.HTTP
	known []knownToken
}

// knownToken is a token as it was read last.
type knownToken struct {
	Actor

	digest digest
}

func newAccess(token string, loopback bool, auth config.NATSAuth, named func() *config.HTTP) *Access {
	return &Access{own: digestOf(token), hasOwn: token != "", loopback: loopback, auth: auth, self: os.Geteuid(), named: named}
}

// Who is who makes a request.
func (a *Access) Who(r *http.Request) Actor { return a.who(r, time.Now()) }

func (a *Access) who(r *http.Request, now time.Time) Actor {
	if a.open() {
		return Actor{Role: a.byUser(r)}
	}
	if scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " "); scheme != "" {
		if !strings.EqualFold(scheme, "Bearer") {
			return Actor{Role: Anybody}
		}
		return a.bearer(digestOf(strings.TrimSpace(given)), now)
	}
	if cookie, err := r.Cookie(sessionCookie); err == nil {
		if of, ok := a.sessions.find(digestOf(cookie.Value), now); ok {
			return a.bearer(of, now) // the token may have been changed since, or taken away
		}
	}
	return Actor{Role: Anybody}
}

// open reports whether nobody is asked for a token.
func (a *Access) open() bool {
	h := a.configured()
	return a.loopback && a.auth != config.AuthRequired && !a.hasOwn && (h == nil || len(h.Tokens) == 0)
}

// byUser is what a request may do that comes from this machine and need not bear a token. Where nothing tells which user it comes from, as
// by way of a proxy in another container, it is not weir's own.
func (a *Access) byUser(r *http.Request) Role {
	if a.auth == config.AuthOpen || !tellsUsers {
		return Operator
	}
	uid, known := callerOf(r.Context()).user()
	if known && (uid == 0 || uid == a.self && uid != overflowUID) {
		return Operator
	}
	return Local
}

// notOperator says to another user of this machine why he may not do something, and how he may.
func notOperator(r *http.Request) *Problem {
	who := "weir cannot tell which user of this machine asks, who"
	if uid, known := callerOf(r.Context()).user(); known {
		who = fmt.Sprintf("user %d of this machine", uid)
	}
	return NewProblem(http.StatusForbidden, "%s may look and hand in jobs without a token, and this needs the role %s: ask as root or as whom weir runs as "+
		"(sudo -u USER …), or have a token configured and bear it (WEIR_HTTP_TOKEN, or http.tokens in the configuration)", who, Operator)
}

func (a *Access) configured() *config.HTTP {
	if a.named == nil {
		return nil
	}
	return a.named()
}

// bearer is whose token it is. All are compared, so that the time it takes does not tell which came near.
func (a *Access) bearer(d digest, now time.Time) Actor {
	found := Actor{Role: Anybody}
	if a.hasOwn && d.is(a.own) {
		found = Actor{Name: EnvironmentToken, Role: Operator}
	}
	for _, t := range a.tokens(now) {
		if t.digest.is(d) && found.Role == Anybody {
			found = t.Actor
		}
	}
	return found
}

// tokens are those of the configuration, read anew once a second. One that cannot be read lets nobody in.
func (a *Access) tokens(now time.Time) []knownToken {
	h := a.configured()
	a.mu.Lock()
	defer a.mu.Unlock()
	if h == nil {
		return nil
	}
	if a.of == h && now.Sub(a.read) < rereadTokens && !now.Before(a.read) {
		return a.known
	}
	a.of, a.read, a.known = h, now, nil
	for _, t := range h.Tokens {
		if text, err := t.Bearer(); err == nil {
			a.known = append(a.known, knownToken{Actor{t.Name, Role(t.Role)}, digestOf(text)})
		}
	}
	return a.known
}

// May reports whether a request may do what needs a role, and who makes it; else what it is to be answered.
func (a *Access) May(r *http.Request, needed Role) (Actor, *Problem) {
	who := a.Who(r)
	switch {
	case who.Role.covers(needed):
		return who, nil
	case who.Role == Local:
		return who, notOperator(r)
	case who.Role != Anybody:
		return who, NewProblem(http.StatusForbidden, "%s has the role %s; this needs %s", who.Name, who.Role, needed)
	case a.failed(r):
		return who, tooManyFailures()
	}
	return who, NewProblem(http.StatusUnauthorized, "this needs a token with the role %s: WEIR_HTTP_TOKEN, or one under http.tokens in the configuration (Authorization: Bearer <token>)", needed)
}

// failed notes a wrong token, and reports whether there were too many of them. A right one is never refused for that: somebody else's
// wrong ones, behind the same proxy, must not keep a producer's jobs out. What is refused is to be told which were wrong.
func (a *Access) failed(r *http.Request) bool {
	return r.Header.Get("Authorization") != "" && !a.failures.take(remote(r), time.Now())
}
