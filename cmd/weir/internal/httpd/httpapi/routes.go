package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/internal/serve/admin"
	"weir/deadletter"
)

// Options are what the API needs. All are required.
type Options struct {
	// Connection has the rights of weir itself. It is the API's own, because questions may be large.
	Connection *connect.Connection
	Config     func() *config.Config      // in force here
	Scope      func() *config.SecretScope // what references a configuration may contain
	// Terms returns what a redrive must know of the apis in force.
	Terms    func() func(api string) (deadletter.Terms, bool)
	Settings *config.Settings
	Log      *slog.Logger
}

// API answers requests. It is safe for concurrent use. Close it when it is not needed any more.
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

// Close ends the streams, and returns when nothing of the API runs any more.
func (a *API) Close() error {
	a.hub.close()
	a.letters.tally.Close()
	return nil
}

// route is a line of the table: a route, its role, and its content.
type route struct {
	method, path string // below /api/v1
	name         string // of the operation
	summary      string
	role         console.Role
	query        []parameter
	body         any    // an example of the request's body, nil: none
	bodyType     string // "": JSON
	answer       any    // an example of the answer
	answerType   string // "": JSON
	maxBody      int64
	time         time.Duration // 0: usual
	atOnce       int
	serve        func(ctx context.Context, r *request) (any, error)
	stream       func(w http.ResponseWriter, r *request)
}

// base is the path of the API.
const base = "/api/v1"

// Bounds of requests that cost more than a question to the dispatchers.
const (
	readsAtOnce = 4           // readings of a stream at a time
	longRead    = time.Minute // of a whole stream
	jsonBody    = 64 << 10    // bytes of what an operator says
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

// mostBody bounds the size of a request's body, in bytes.
func (r *route) mostBody() int64 {
	if r.maxBody == 0 && r.body != nil {
		return jsonBody
	}
	return r.maxBody
}

// reply reads a request and answers it.
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
		if q.Context().Err() != nil && errors.Is(q.Context().Err(), context.Canceled) {
			return // the client has gone
		}
		problemOf(err).Write(w)
		return
	}
	console.WriteJSON(w, http.StatusOK, told)
}

// api returns the api of a request's path, which must be configured.
func (o *Options) api(r *request) (*config.API, error) { return o.named(r.PathValue("api")) }

// named returns the api with a name, which must be configured.
func (o *Options) named(name string) (*config.API, error) {
	c := o.Config()
	api, ok := c.API(name)
	if !ok {
		return nil, admin.NoAPI(name, c)
	}
	return api, nil
}
