package config

import (
	"fmt"
	"net/textproto"
	"slices"
	"strings"
	"time"
)

// Reuse says when a job gets the answer of an equal job without a call. A nil *Reuse says never.
type Reuse struct {
	For        time.Duration // how old the answer may be
	Of         []string      // what is compared: method, path, query, body, header:NAME
	AcrossKeys bool          // jobs of different keys may be equal
	Bytes      int64         // of memory for the places of answers
}

// The parts of a request that are compared, besides headers.
const (
	reuseMethod = "method"
	reusePath   = "path"
	reuseQuery  = "query"
	reuseBody   = "body"

	reuseHeader     = "header:"
	mostReuseParts  = 32
	longestReuse    = 30 * day
	leastReuseBytes = 4 << 10
	mostReuseBytes  = 1 << 30
)

func (r *Reuse) section(a *API) section {
	return section{
		fields: []field{
			{
				name: "for", is: one(&r.For, duration(time.Second, longestReuse)), needs: "write for: 10m",
				means: "how old the answer may be. Not longer than `results.max_age`",
			},
			{
				name: "of", or: "[method, path, query, body]",
				is: many(&r.Of, mostReuseParts, of[string]{
					comparedPart, same, "a list of `method`, `path`, `query`, `body` and `header:NAME`, at most 32",
					object{"type": "string", "pattern": "^(method|path|query|body|header:.+)$"},
				}),
				means: "what two jobs must have in common, byte by byte. A header counts only if it is named",
			},
			{
				name: "across_keys", is: one(&r.AcrossKeys, yes()), or: "false",
				means: "`true`: jobs of different keys share answers. With several replicas only those whose keys one replica has",
			},
			{
				name: "bytes", is: one(&r.Bytes, size(leastReuseBytes, mostReuseBytes)), or: "16MiB",
				means: "the memory of each replica for the places of answers, about 224 bytes each. The oldest go first",
			},
		},
		check: func(f fields) {
			if f.fine("of") && len(r.Of) == 0 {
				f.place("of").fail("compares nothing, so that every job would get the same answer", "name what must be equal, or remove the field for all")
			}
			if i := a.Idempotency; f.clean() && i != nil && slices.Contains(r.Of, reuseHeader+i.Header) {
				f.place("of").fail(i.Header+" carries the job's id, in which no two jobs are equal", "remove it")
			}
			for _, name := range a.ForwardHeaders {
				if f.clean() && !slices.Contains(r.Of, reuseHeader+name) {
					f.note("jobs that differ only in header "+name+" get the same answer", "write of: [method, path, query, body, header:"+name+"] if that header changes it")
				}
			}
		},
	}
}

// comparedPart reads a part of a request that is compared.
func comparedPart(text string) (string, error) {
	name, isHeader := strings.CutPrefix(text, reuseHeader)
	if !isHeader {
		return oneOf(reuseMethod, reusePath, reuseQuery, reuseBody, reuseHeader+"NAME")(text)
	}
	if _, err := headerName(name); err != nil {
		return "", err
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	switch {
	case strings.HasPrefix(name, "Weir-") || strings.HasPrefix(name, "Nats-"):
		return "", refuse("write the name without Weir-Header-, of a header that goes to the api", "%s speaks to weir or NATS, about one job", quote(name))
	case name == "Traceparent" || name == "Tracestate" || name == "Baggage":
		return "", refuse("remove it", "%s names one job's trace", quote(name))
	}
	return reuseHeader + name, nil
}

// checkReuse reports an api whose answers are to be given again for longer than they are kept.
func (c *Config) checkReuse(f fields) {
	for i := range c.APIs {
		a := &c.APIs[i]
		switch {
		case a.Reuse == nil:
		case a.Reuse.For > c.Results.MaxAge:
			f.place("apis").warn(fmt.Sprintf("api %s gives answers again for %s, and results are kept for %s: older answers are gone, and their jobs are called", a.Name, FormatDuration(a.Reuse.For), FormatDuration(c.Results.MaxAge)),
				"write a shorter reuse.for, or a longer results.max_age")
		case c.Results.MaxBody == 0:
			f.place("results").warn(fmt.Sprintf("no answer of api %s is given again: results keep nothing of their bodies", a.Name), "write results: {max_body: 64KiB}")
		}
	}
}
