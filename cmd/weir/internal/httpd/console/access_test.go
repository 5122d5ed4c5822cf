package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/environment"
	"weir/ingest/await"

	"github.com/prometheus/client_golang/prometheus"
)

const token = "0123456789abcdef"

// start starts a server on an address. The test may change the HTTP configuration that it returns.
func start(t *testing.T, listen, token string) (*Server, *atomic.Pointer[config.HTTP]) {
	t.Helper()
	return startFor(t, listen, token, environment.AuthOperators)
}

// startFor is start with a setting of WEIR_NATS_AUTH.
func startFor(t *testing.T, listen, token string, auth environment.NATSAuth) (*Server, *atomic.Pointer[config.HTTP]) {
	t.Helper()
	named := &atomic.Pointer[config.HTTP]{}
	s, err := Listen(Options{
		Listen: listen, Token: token, Auth: auth, Named: named.Load, Gatherer: prometheus.NewRegistry(), Version: "1",
		Connections: 100, HeaderBytes: 1 << 20, Log: slog.New(slog.DiscardHandler),
		Ready: func(context.Context) error { return errors.New("the store is full") },
		Alive: func() error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []Role{Anybody, AnyRole, Producer, Viewer, Operator} {
		for _, method := range []string{"GET", "POST"} {
			s.Add(Route{Method: method, Path: "/api/v1/test/" + string(role), Role: role, MaxBody: 10, Serve: func(w http.ResponseWriter, r *http.Request, who Actor) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
					return
				}
				_, _ = fmt.Fprintf(w, "%s %s %s", who.Name, who.Role, body)
			}})
		}
	}
	s.Serve()
	t.Cleanup(func() { _ = s.Close() })
	return s, named
}

// request is an HTTP request of a test.
type request struct {
	method, path, body, host string
	header                   map[string]string
	cookie                   *http.Cookie
}

func ask(t *testing.T, s *Server, q request) (*http.Response, string) {
	t.Helper()
	return askBy(t, http.DefaultClient, s, q)
}

func askBy(t *testing.T, client *http.Client, s *Server, q request) (*http.Response, string) {
	t.Helper()
	if q.method == "" {
		q.method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(await.Context(t, q.path), q.method, "http://"+s.Addr()+q.path, strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	if q.host != "" {
		r.Host = q.host
	}
	for name, value := range q.header {
		r.Header.Set(name, value)
	}
	if q.cookie != nil {
		r.AddCookie(q.cookie)
	}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func get(t *testing.T, s *Server, path, authorization string) (int, string) {
	t.Helper()
	header := map[string]string{}
	if authorization != "" {
		header["Authorization"] = authorization
	}
	res, body := ask(t, s, request{path: path, header: header})
	return res.StatusCode, body
}

// named returns a configuration with one token for each role, in files of dir. A token's text begins with the role.
func named(t *testing.T, dir, hosts string) *config.HTTP {
	t.Helper()
	text := "apis: {}\nhttp:\n  hosts: [" + hosts + "]\n  tokens:\n"
	for _, role := range []string{"producer", "viewer", "operator"} {
		file := filepath.Join(dir, role)
		if err := os.WriteFile(file, []byte(role+"-0123456789\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("    the-%s: {role: %s, token: \"${file:%s}\"}\n", role, role, file)
	}
	c, err := config.Parse([]byte(text), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &c.HTTP
}

// TestOnlyWhoBearsTheTokenSeesAnything checks that only requests with the token get answers. Probes are open, but tell
// a client without a token only yes or no.
func TestOnlyWhoBearsTheTokenSeesAnything(t *testing.T) {
	s, _ := start(t, "127.0.0.1:0", token)
	for _, path := range []string{"/metrics", "/api/v1/test/known", "/api/v1/test/operator"} {
		for authorization, want := range map[string]int{
			"": 401, "Bearer": 401, "Bearer ": 401, "Bearer 0123456789abcdeF": 401, "Basic " + token: 401,
			token: 401, "Bearer " + token: 200, "bearer " + token: 200,
		} {
			s.access.failures = failures{}
			if got, _ := get(t, s, path, authorization); got != want {
				t.Errorf("%s with %q answers %d, want %d", path, authorization, got, want)
			}
		}
	}
	if got, _ := get(t, s, "/livez", ""); got != 200 {
		t.Errorf("/livez answers %d", got)
	}
	if got, body := get(t, s, "/readyz", ""); got != 503 || strings.Contains(body, "store") {
		t.Errorf("/readyz tells a stranger %d %s", got, body)
	}
	if _, body := get(t, s, "/readyz", "Bearer "+token); !strings.Contains(body, "the store is full") {
		t.Errorf("/readyz tells a viewer only %s", body)
	}
}

// TestOpenOnThisMachineOnly checks that without any token weir's own user is an operator on this machine, and that
// other machines have no rights.
func TestOpenOnThisMachineOnly(t *testing.T) {
	open, configured := start(t, "127.0.0.1:0", "")
	if got, body := get(t, open, "/api/v1/test/operator", ""); got != 200 || body != " operator " {
		t.Errorf("on a loopback address without a token an operator is answered %d %s", got, body)
	}
	configured.Store(named(t, t.TempDir(), ""))
	if got, _ := get(t, open, "/api/v1/test/viewer", ""); got != 401 {
		t.Errorf("once a token is configured a stranger gets %d", got)
	}
	for _, without := range []string{"0.0.0.0:0", "[::]:0"} {
		s, _ := start(t, without, "")
		for _, path := range []string{"/metrics", "/api/v1/test/known"} {
			if got, _ := get(t, s, path, ""); got != 401 {
				t.Errorf("a stranger at %s gets %d from %s", without, got, path)
			}
		}
	}
}

// TestRolesMayWhatTheyAreFor checks that each role may do what it is for, that an operator may do everything, and that
// a rotated or removed token is no longer valid.
func TestRolesMayWhatTheyAreFor(t *testing.T) {
	s, configured := start(t, "127.0.0.1:0", token)
	dir := t.TempDir()
	configured.Store(named(t, dir, ""))
	for role, may := range map[string]map[Role]bool{
		"producer": {Anybody: true, AnyRole: true, Producer: true},
		"viewer":   {Anybody: true, AnyRole: true, Viewer: true},
		"operator": {Anybody: true, AnyRole: true, Producer: true, Viewer: true, Operator: true},
	} {
		for _, needed := range []Role{Anybody, AnyRole, Producer, Viewer, Operator} {
			want := map[bool]int{true: 200, false: 403}[may[needed]]
			got, body := get(t, s, "/api/v1/test/"+string(needed), "Bearer "+role+"-0123456789")
			if got != want {
				t.Errorf("a request of the role %s that needs %s is answered %d: %s", role, needed, got, body)
			}
			if want == 403 && (!strings.Contains(body, "the-"+role) || !strings.Contains(body, `"err_code":20403`)) {
				t.Errorf("a %s is told no more than %s", role, body)
			}
		}
	}
	if got, _ := get(t, s, "/api/v1/test/operator", "Bearer "+token); got != 200 {
		t.Errorf("the token of the environment gets %d", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "viewer"), []byte("another-0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the rotated token holds", func() bool {
		was, _ := get(t, s, "/api/v1/test/viewer", "Bearer viewer-0123456789")
		is, _ := get(t, s, "/api/v1/test/viewer", "Bearer another-0123456789")
		return was != 200 && is == 200
	})
	configured.Store(&config.HTTP{})
	if got, _ := get(t, s, "/api/v1/test/operator", "Bearer operator-0123456789"); got == 200 {
		t.Error("a token that the configuration has no more still holds")
	}
}

// TestSessions checks that a browser sends its token once, and that its cookie has the token's rights until the session
// ends. No script and no other site can read or use the cookie.
func TestSessions(t *testing.T) {
	s, configured := start(t, "127.0.0.1:0", "")
	dir := t.TempDir()
	configured.Store(named(t, dir, ""))
	login := func(token string) (*http.Response, string) {
		return ask(t, s, request{method: "POST", path: "/api/v1/login", body: fmt.Sprintf(`{"token": %q}`, token)})
	}
	if res, body := login("nobodys-0123456789"); res.StatusCode != 401 || len(res.Cookies()) > 0 {
		t.Fatalf("a wrong token logs in: %d %s", res.StatusCode, body)
	}
	res, body := login("viewer-0123456789")
	if res.StatusCode != 200 || len(res.Cookies()) != 1 {
		t.Fatalf("the login answers %d %s", res.StatusCode, body)
	}
	cookie := res.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.MaxAge <= 0 || strings.Contains(cookie.Value, "viewer") {
		t.Errorf("the cookie is %s", cookie)
	}
	var is Session
	if _, body := ask(t, s, request{path: "/api/v1/session", cookie: cookie}); json.Unmarshal([]byte(body), &is) != nil || is != (Session{"the-viewer", Viewer, true}) {
		t.Errorf("the session is %s", body)
	}
	with := func(role Role) int {
		res, _ := ask(t, s, request{path: "/api/v1/test/" + string(role), cookie: cookie})
		return res.StatusCode
	}
	if with(Viewer) != 200 || with(Operator) != 403 {
		t.Errorf("a viewer's session does viewer %d, operator %d", with(Viewer), with(Operator))
	}
	if res, _ := ask(t, s, request{method: "POST", path: "/api/v1/logout", cookie: cookie}); res.StatusCode != 204 || with(Viewer) != 401 {
		t.Errorf("after the logout (%d) the cookie gets %d", res.StatusCode, with(Viewer))
	}
	res, _ = login("viewer-0123456789")
	cookie = res.Cookies()[0]
	if err := os.WriteFile(filepath.Join(dir, "viewer"), []byte("another-0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "a session ends with its token", func() bool { return with(Viewer) == 401 })
	res, _ = ask(t, s, request{
		method: "POST", path: "/api/v1/login", body: `{"token": "operator-0123456789"}`, header: map[string]string{"X-Forwarded-Proto": "https"},
	})
	if len(res.Cookies()) != 1 || !res.Cookies()[0].Secure {
		t.Errorf("behind TLS the cookie is %v", res.Cookies())
	}
}

// TestSessionsAreBounded checks the bounds of sessions, in number and time.
func TestSessionsAreBounded(t *testing.T) {
	var s sessions
	now, of := time.Unix(1_000_000, 0), digestOf(token)
	first, second := s.begin(of, now), s.begin(of, now)
	for range mostSessions - 1 {
		s.begin(of, now.Add(time.Second))
	}
	if _, ok := s.find(digestOf(first), now); ok || len(s.all) != mostSessions {
		t.Errorf("the oldest of too many sessions goes on, of %d", len(s.all))
	}
	if got, ok := s.find(digestOf(second), now.Add(sessionLasts-1)); !ok || !got.is(of) {
		t.Error("a session ends before its time")
	}
	if _, ok := s.find(digestOf(second), now.Add(sessionLasts)); ok || len(s.all) != mostSessions-1 {
		t.Errorf("a session goes on after its time; %d are kept", len(s.all))
	}
	if _, ok := s.find(digestOf(""), now); ok {
		t.Error("an empty cookie has a session")
	}
}

// TestWrongTokensAreBounded checks that an address with too many wrong tokens must wait, and that valid tokens are
// accepted meanwhile.
func TestWrongTokensAreBounded(t *testing.T) {
	s, _ := start(t, "127.0.0.1:0", token)
	login := request{method: "POST", path: "/api/v1/login", body: `{"token": "wrong"}`}
	for range failuresAtOnce {
		if res, _ := ask(t, s, login); res.StatusCode != 401 {
			t.Fatalf("a wrong token is answered %d", res.StatusCode)
		}
	}
	res, body := ask(t, s, login)
	if res.StatusCode != 429 || res.Header.Get("Retry-After") == "" || !strings.Contains(body, `"err_code":20429`) {
		t.Errorf("after %d wrong tokens another one is answered %d %s", failuresAtOnce, res.StatusCode, body)
	}
	login.body = fmt.Sprintf(`{"token": %q}`, token)
	if res, _ := ask(t, s, login); res.StatusCode != 200 {
		t.Errorf("a right token cannot log in because of another client's wrong ones behind the same proxy: %d", res.StatusCode)
	}
	if got, _ := get(t, s, "/metrics", "Bearer wrong"); got != 429 {
		t.Errorf("a wrong bearer then gets %d", got)
	}
	if got, _ := get(t, s, "/metrics", "Bearer "+token); got != 200 {
		t.Errorf("a right token gets %d because of another client's wrong ones", got)
	}
}

// TestPagesOfOtherSitesMayNothing checks that pages of other sites cannot use weir, neither by requests of their
// browsers nor by a name of their own that resolves to this machine.
func TestPagesOfOtherSitesMayNothing(t *testing.T) {
	s, configured := start(t, "127.0.0.1:0", "")
	own := "http://" + s.Addr()
	for _, c := range []struct {
		name string
		q    request
		want int
	}{
		{"a program", request{}, 200},
		{"a program's post", request{method: "POST"}, 200},
		{"its own page", request{header: map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": own}}, 200},
		{"its own page's post", request{method: "POST", header: map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": own}}, 200},
		{"a user that types the address", request{header: map[string]string{"Sec-Fetch-Site": "none"}}, 200},
		{"a form of another site", request{method: "POST", header: map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}}, 403},
		{"a page of another port", request{method: "POST", header: map[string]string{"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:1"}}, 403},
		{"an old browser's form", request{method: "POST", header: map[string]string{"Origin": "https://evil.example"}}, 403},
		{"a page in a sandbox", request{method: "POST", header: map[string]string{"Origin": "null"}}, 403},
		{"a script that reads", request{header: map[string]string{"Sec-Fetch-Site": "cross-site"}}, 403},
		{"a page of another port that reads", request{header: map[string]string{"Sec-Fetch-Site": "same-site"}}, 403},
		{"an old browser's script that reads", request{header: map[string]string{"Origin": "https://evil.example"}}, 403},
		{"a name that was rebound", request{host: "evil.example"}, 421},
		{"the same with the port", request{host: "evil.example:8480"}, 421},
		{"an address of another machine", request{host: "10.0.0.1:8480"}, 421},
		{"localhost", request{host: "localhost:8480"}, 200},
		{"localhost with a dot", request{host: "LOCALHOST.:8480"}, 200},
		{"IPv6", request{host: "[::1]:8480"}, 200},
		{"a name like localhost", request{host: "localhost.evil.example"}, 421},
	} {
		c.q.path = "/api/v1/test/operator"
		if res, body := ask(t, s, c.q); res.StatusCode != c.want {
			t.Errorf("%s is answered %d %s, want %d", c.name, res.StatusCode, body, c.want)
		}
	}
	link := map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
	if res, _ := ask(t, s, request{path: "/", header: link}); res.StatusCode != 200 {
		t.Errorf("a link to the first page is answered %d", res.StatusCode)
	}
	if res, _ := ask(t, s, request{path: "/metrics", header: link}); res.StatusCode != 403 {
		t.Errorf("another site's page reads the metrics: %d", res.StatusCode)
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if res, _ := ask(t, s, request{path: path, host: "weir.weir.svc"}); res.StatusCode == 421 {
			t.Errorf("a probe of %s by another name is refused", path)
		}
	}
	configured.Store(&config.HTTP{Hosts: []string{"weir.example.com"}})
	if res, _ := ask(t, s, request{path: "/metrics", host: "Weir.example.com"}); res.StatusCode != 200 {
		t.Errorf("a configured name is answered %d", res.StatusCode)
	}
}

// TestHostsElsewhere checks the host names if other machines can connect: any name until some are configured, and
// addresses always.
func TestHostsElsewhere(t *testing.T) {
	s, configured := start(t, "0.0.0.0:0", token)
	by := func(host string) int {
		res, _ := ask(t, s, request{path: "/metrics", host: host, header: map[string]string{"Authorization": "Bearer " + token}})
		return res.StatusCode
	}
	if by("evil.example") != 200 {
		t.Errorf("by any name: %d", by("evil.example"))
	}
	configured.Store(&config.HTTP{Hosts: []string{"weir.example.com"}})
	if by("weir.example.com:443") != 200 || by("10.1.2.3:8480") != 200 || by("evil.example") != 421 {
		t.Errorf("by its name %d, by an address %d, by another name %d", by("weir.example.com:443"), by("10.1.2.3:8480"), by("evil.example"))
	}
}

// TestRequestsAreBounded checks that no body is larger than its route allows, and that requests without a route get a
// problem as their answer.
func TestRequestsAreBounded(t *testing.T) {
	s, _ := start(t, "127.0.0.1:0", "")
	if res, _ := ask(t, s, request{method: "POST", path: "/api/v1/test/viewer", body: "0123456789"}); res.StatusCode != 200 {
		t.Errorf("a body that fits is answered %d", res.StatusCode)
	}
	if res, _ := ask(t, s, request{method: "POST", path: "/api/v1/test/viewer", body: "0123456789x"}); res.StatusCode != 413 {
		t.Errorf("a body that is too large is answered %d", res.StatusCode)
	}
	for _, c := range []struct {
		method, path string
		want         int
	}{{"GET", "/nothing", 404}, {"DELETE", "/metrics", 405}, {"PUT", "/api/v1/login", 405}, {"POST", "/", 405}} {
		res, body := ask(t, s, request{method: c.method, path: c.path})
		if res.StatusCode != c.want || res.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(body, fmt.Sprintf(`"err_code":20%d`, c.want)) {
			t.Errorf("%s %s is answered %d %s", c.method, c.path, res.StatusCode, body)
		}
		if c.want == 405 && res.Header.Get("Allow") == "" {
			t.Errorf("%s %s is not told what is allowed", c.method, c.path)
		}
	}
	if res, _ := ask(t, s, request{path: "/", header: map[string]string{"X-Large": strings.Repeat("x", maxHeaders+8192)}}); res.StatusCode != 431 {
		t.Errorf("headers that are too large are answered %d", res.StatusCode)
	}
	for _, body := range []string{"", "{", `{"token": 1}`, `{"tokens": "x"}`, `{"token": "x"} {}`, `[]`} {
		if res, _ := ask(t, s, request{method: "POST", path: "/api/v1/login", body: body}); res.StatusCode != 400 {
			t.Errorf("a login that says %q is answered %d", body, res.StatusCode)
		}
	}
}

// TestOnlySoManyAtATime checks that an expensive route refuses further requests with 503.
func TestOnlySoManyAtATime(t *testing.T) {
	s, _ := start(t, "127.0.0.1:0", "")
	inside, leave := make(chan bool, 1), make(chan bool)
	route := Route{Method: "GET", Path: "/dear", Role: Viewer, AtOnce: 1, Serve: func(_ http.ResponseWriter, r *http.Request, _ Actor) {
		inside <- true
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	}}
	s.Add(route)
	first := make(chan int, 1)
	go func() {
		status, _ := get(t, s, "/dear", "")
		first <- status
	}()
	await.Receive(t, "the first is being answered", inside)
	if res, _ := ask(t, s, request{path: "/dear"}); res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
		t.Errorf("a second one is answered %d", res.StatusCode)
	}
	close(leave)
	if got := await.Receive(t, "the first is answered", first); got != 200 {
		t.Errorf("the first is answered %d", got)
	}
}

// deadlines is an http.ResponseWriter that keeps the read deadline of its connection.
type deadlines struct {
	http.ResponseWriter

	read time.Time
}

// SetReadDeadline stands for the method of the connection.
func (d *deadlines) SetReadDeadline(t time.Time) error { d.read = t; return nil }

// TestTimeEndsBeforeTheReading checks that a request's own time ends before its read deadline, at which net/http cancels
// the request as if the client had gone.
func TestTimeEndsBeforeTheReading(t *testing.T) {
	w := &deadlines{ResponseWriter: httptest.NewRecorder()}
	q, cancel := timed(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), time.Minute)
	defer cancel()
	if over, ok := q.Context().Deadline(); !ok || !over.Before(w.read) {
		t.Errorf("the time is over at %s, the reading at %s", over, w.read)
	}
}
