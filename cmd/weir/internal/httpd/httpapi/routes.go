package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/config/secret"
	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/internal/serve/admin"
	"weir/deadletter"
)

// Options of an API. All are required.
type Options struct {
	// Connection has weir's own rights. Only the API uses it, because answers may be large.
	Connection *connect.Connection
	Config     func() *config.Config // returns the configuration in force on this replica
	Scope      func() *secret.Scope  // which references a configuration may contain
	// Terms returns the present terms of apis, which redrives need.
	Terms    func() func(api string) (deadletter.Terms, bool)
	Settings *environment.Settings
	Log      *slog.Logger
}

// API answers the requests under /api/v1. It is safe for concurrent use. Close ends it.
type API struct {
	overview  *overview
	hub       *hub
	events    *events
	past      *past
	buckets   *buckets
	pauses    *pauses
	jobs      *jobs
	results   *results
	spending  *spending
	letters   *deadLetters
	transfers *transfers
	redrives  *redrives
	versions  *versions
	proposals *proposals
	whatIf    *whatIf
}

// New returns an API that is ready to answer.
func New(o Options) *API {
	a := &API{
		overview: &overview{Options: &o}, events: &events{&o}, past: &past{&o}, buckets: &buckets{&o}, pauses: &pauses{&o}, jobs: &jobs{&o},
		results: &results{&o}, letters: &deadLetters{&o, deadview.NewTally()}, versions: &versions{&o}, proposals: &proposals{&o}, whatIf: &whatIf{&o},
	}
	a.hub, a.spending = &hub{Options: &o, overview: a.overview}, &spending{&o, a.overview}
	a.transfers, a.redrives = &transfers{&o}, &redrives{&o}
	return a
}

// Close ends all streams, and returns after everything that the API started has ended.
func (a *API) Close() error {
	a.hub.close()
	a.letters.tally.Close()
	return nil
}

// route is one line of the table: a request, the role that it needs, its bounds and its answer.
type route struct {
	method, path string // below /api/v1
	name         string // the operation's name in the document
	summary      string
	role         console.Role
	query        []parameter
	body         any    // an example of the request's body, nil: none
	bodyType     string // "": JSON
	answer       any    // an example of the answer
	answerType   string // "": JSON
	maxBody      int64
	time         time.Duration // 0: the usual time
	atOnce       int
	serve        func(ctx context.Context, r *request) (any, error)
	stream       func(w http.ResponseWriter, r *request)
}

// base is the path of the API.
const base = "/api/v1"

// Bounds of requests that cost more than asking the dispatchers.
const (
	readsAtOnce = 4           // requests that read a stream at a time
	longRead    = time.Minute // for reading a whole stream
	jsonBody    = 64 << 10    // bytes of an operator's request
)

// Routes returns the API's routes.
func (a *API) Routes() []console.Route {
	var routes []console.Route
	for _, r := range a.table() {
		routes = append(routes, console.Route{
			Method: r.method, Path: base + r.path, Role: r.role, MaxBody: r.mostBody(), Time: r.time, AtOnce: r.atOnce,
			Serve: func(w http.ResponseWriter, q *http.Request, who console.Actor) { r.reply(w, q, who) },
		})
	}
	return routes
}

// mostBody returns the largest request body in bytes.
func (r *route) mostBody() int64 {
	if r.maxBody == 0 && r.body != nil {
		return jsonBody
	}
	return r.maxBody
}

// reply checks a request and answers it.
func (r *route) reply(w http.ResponseWriter, q *http.Request, who console.Actor) {
	asked, err := r.parse(q, who)
	if err == nil {
		asked.connection = http.NewResponseController(w)
	}
	if err == nil && r.stream != nil {
		r.stream(w, asked)
		return
	}
	var told any
	if err == nil {
		told, err = r.serve(q.Context(), asked)
	}
	if err != nil {
		problemOf(err).Write(w)
		return
	}
	console.WriteJSON(w, http.StatusOK, told)
}

// api returns the configured api that a request's path names.
func (o *Options) api(r *request) (*config.API, error) { return o.named(r.PathValue("api")) }

// named returns the configured api called name.
func (o *Options) named(name string) (*config.API, error) {
	c := o.Config()
	api, ok := c.API(name)
	if !ok {
		return nil, admin.NoAPI(name, c)
	}
	return api, nil
}
