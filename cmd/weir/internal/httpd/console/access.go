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
	"weir/cmd/weir/internal/config/environment"
)

// Role is a set of rights, which a request needs or has.
type Role string

// The roles. An operator may do everything.
const (
	Anybody  Role = "anybody" // any request, even one without a token
	AnyRole  Role = "known"   // any request with one of the roles below
	Producer      = Role(config.RoleProducer)
	Viewer        = Role(config.RoleViewer)
	Operator      = Role(config.RoleOperator)
	Local    Role = "local" // another user of this machine without a token: a producer and a viewer
)

// covers reports whether a request that has the role r may do what needs the role needed.
func (r Role) covers(needed Role) bool {
	switch needed {
	case Anybody:
		return true
	case AnyRole:
		return r == Producer || r == Viewer || r == Local || r == Operator
	case Producer, Viewer:
		if r == Local {
			return true
		}
	case Operator, Local:
	}
	return r == needed || r == Operator
}

// Actor is the user or program that sent a request.
type Actor struct {
	Name string // of the token; "" if no token is required
	Role Role   // Anybody if the request has no valid token
}

// String names the actor, for events and messages to operators.
func (a Actor) String() string {
	if a.Name == "" {
		return "a user of this machine, over HTTP"
	}
	return a.Name + ", over HTTP"
}

// digest is the digest of a token or of a session's cookie. Comparing digests reveals neither the secret nor its
// length.
type digest [sha256.Size]byte

func digestOf(text string) digest { return sha256.Sum256([]byte(text)) }

func (d digest) is(other digest) bool { return subtle.ConstantTimeCompare(d[:], other[:]) == 1 }

// EnvironmentToken is the Name of an actor whose token is WEIR_HTTP_TOKEN.
const EnvironmentToken = "WEIR_HTTP_TOKEN"

// rereadTokens is how long Access uses the tokens of the configuration before it reads them again. A rotated secret
// takes effect after that time.
const rereadTokens = time.Second

// Access identifies the actor of a request and decides what the actor may do. It is safe for concurrent use.
//
// Valid tokens are the environment's token and the tokens of the configuration in force. A client sends its token with
// each request (Authorization: Bearer …), or a browser sends it once at login, and then the session's cookie.
//
// If there is no token and only this machine can connect, no request needs a token. Then weir's own user and root are
// operators. Other users of the machine have the rights that they have on the embedded server.
type Access struct {
	own      digest // digest of the environment's token
	hasOwn   bool
	loopback bool                 // only this machine can connect
	auth     environment.NATSAuth // which users a loopback address admits without a token
	self     int                  // the user id that weir runs as
	named    func() *config.HTTP  // the HTTP configuration in force; may return nil
	sessions sessions
	failures failures

	mu     sync.Mutex // guards the fields below
	read   time.Time
	of     *config.HTTP
	cached []knownToken
}

// knownToken is a token of the configuration as Access last read it.
type knownToken struct {
	Actor

	digest digest
}

func newAccess(token string, loopback bool, auth environment.NATSAuth, named func() *config.HTTP) *Access {
	return &Access{own: digestOf(token), hasOwn: token != "", loopback: loopback, auth: auth, self: os.Geteuid(), named: named}
}

// Who returns the actor of a request.
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
			return a.bearer(of, now) // the token may have changed or gone since the login
		}
	}
	return Actor{Role: Anybody}
}

// open reports whether requests need no token.
func (a *Access) open() bool {
	h := a.configured()
	return a.loopback && a.auth != environment.AuthRequired && !a.hasOwn && (h == nil || len(h.Tokens) == 0)
}

// byUser returns the role of a request from this machine without a token. If the request's user is unknown, for example
// because the request came through a proxy in another container, the user does not count as weir's own.
func (a *Access) byUser(r *http.Request) Role {
	if a.auth == environment.AuthOpen || !tellsUsers {
		return Operator
	}
	uid, known := callerOf(r.Context()).user()
	if known && (uid == 0 || uid == a.self && uid != overflowUID) {
		return Operator
	}
	return Local
}

// notOperator returns the problem for another user of this machine who needs the role operator. It says how that user
// can get the right.
func notOperator(r *http.Request) *Problem {
	who := "a user of this machine that weir cannot identify"
	if uid, known := callerOf(r.Context()).user(); known {
		who = fmt.Sprintf("user %d of this machine", uid)
	}
	return NewProblem(http.StatusForbidden, "%s may look and hand in jobs without a token, and this needs the role %s: ask as root or as the user that weir runs as "+
		"(sudo -u USER …), or configure a token and send it (WEIR_HTTP_TOKEN, or http.tokens in the configuration)", who, Operator)
}

func (a *Access) configured() *config.HTTP {
	if a.named == nil {
		return nil
	}
	return a.named()
}

// bearer returns the actor with a token. It compares all tokens, so that its duration does not reveal a near match.
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

// tokens returns the tokens of the configuration. It reads them again after rereadTokens. A token that cannot be read
// admits no request.
func (a *Access) tokens(now time.Time) []knownToken {
	h := a.configured()
	a.mu.Lock()
	defer a.mu.Unlock()
	if h == nil {
		return nil
	}
	if a.of == h && now.Sub(a.read) < rereadTokens && !now.Before(a.read) {
		return a.cached
	}
	a.of, a.read, a.cached = h, now, nil
	for _, t := range h.Tokens {
		if text, err := t.Bearer(); err == nil {
			a.cached = append(a.cached, knownToken{Actor{t.Name, Role(t.Role)}, digestOf(text)})
		}
	}
	return a.cached
}

// May returns the actor of a request. The problem is nil if the actor has the role needed; otherwise it is the answer
// to the request.
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

// failed counts a wrong token. It reports whether the request's address has shown too many wrong tokens. The answer
// then no longer says that the token was wrong. A valid token is never refused, because wrong tokens of other clients
// behind the same proxy must not block a producer.
func (a *Access) failed(r *http.Request) bool {
	return r.Header.Get("Authorization") != "" && !a.failures.take(remote(r), time.Now())
}
