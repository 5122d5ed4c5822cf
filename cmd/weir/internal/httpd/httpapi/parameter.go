package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/ingest"
)

// parameter is one parameter of a query. A request may have it at most once.
type parameter struct {
	name    string
	summary string
	kind    kind
	most    int      // largest value of a number; the smallest is 1
	usual   int      // the number without the parameter
	words   []string // the allowed values; none: any
}

// kind is the type of a parameter.
type kind string

const (
	text    kind = "string"
	number  kind = "integer"
	instant kind = "instant" // RFC 3339, or a duration before now
	yes     kind = "boolean"
)

// Parameters of several questions.
var (
	listLimit = parameter{name: "limit", summary: "how many to list", kind: number, most: 1000, usual: 100}
	ofAPI     = parameter{name: "api", summary: "only of this api", kind: text}
	ofKey     = parameter{name: "key", summary: "only of this key; needs api", kind: text}
	keyOfAny  = parameter{name: "key", summary: "only of this key, of the api or of every api", kind: text}
	since     = parameter{name: "since", summary: "only from this RFC 3339 time on, or from this long ago, as in 2h or 1d", kind: instant}
	before    = parameter{name: "before", summary: "next of the page before: only what was stored before this message", kind: text}
	groupBy   = parameter{name: "by", summary: "what it is added up by", kind: text, words: []string{"api", "key", "tenant", "day"}}
)

// checkedNames maps parameters that become parts of subjects to their checks. All routes use it.
var checkedNames = map[string]func(string) error{"api": ingest.CheckAPI, "key": ingest.CheckKey, "job": ingest.CheckJobID}

// parse reads the query. It refuses unknown parameters, so that a mistyped one does not silently widen the question.
func (r *route) parse(q *http.Request, who console.Actor) (*request, error) {
	given, err := url.ParseQuery(q.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query cannot be read: %v", err)
	}
	for name, values := range given {
		i := slices.IndexFunc(r.query, func(p parameter) bool { return p.name == name })
		switch {
		case i < 0:
			return nil, badRequest("there is no parameter %q here%s", name, r.parameterNames())
		case len(values) > 1:
			return nil, badRequest("%s is given %d times", name, len(values))
		}
		if err := r.query[i].check(values[0]); err != nil {
			return nil, err
		}
	}
	return &request{Request: q, who: who, asked: time.Now(), given: given}, nil
}

func (r *route) parameterNames() string {
	if len(r.query) == 0 {
		return ", nor any other"
	}
	var names []string
	for _, p := range r.query {
		names = append(names, p.name)
	}
	return "; there are " + strings.Join(names, ", ")
}

func (p *parameter) check(value string) error {
	switch p.kind {
	case number:
		if n, err := strconv.Atoi(value); err != nil || n < 1 || p.most > 0 && n > p.most {
			return badRequest("%s is a whole number from 1 to %d", p.name, p.most)
		}
	case instant:
		if _, err := deadview.ReadTime(value, time.Now()); err != nil {
			return badRequest("%s: %v", p.name, err)
		}
	case yes:
		if value != "true" && value != "false" {
			return badRequest("%s is true or false", p.name)
		}
	case text:
		if valid := checkedNames[p.name]; valid != nil && value != "" {
			if err := valid(value); err != nil {
				return badRequest("%s: %v", p.name, err)
			}
		}
		if p.words != nil && !slices.Contains(p.words, value) {
			return badRequest("%s %q: it is one of %s", p.name, value, strings.Join(p.words, ", "))
		}
	}
	return nil
}
