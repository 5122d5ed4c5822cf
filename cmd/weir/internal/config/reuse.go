package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/grammar"
	"weir/ingest"
)

// Reuse says when weir gives a job the answer of an equal job instead of calling. A nil *Reuse means never.
type Reuse struct {
	For        time.Duration // the greatest age of an answer
	Of         []string      // parts compared besides the method: path, body, header:NAME; nil: the whole request
	AcrossKeys bool          // jobs of different keys of one tenant may be equal
	Bytes      int64         // memory for the places of answers
}

// Parts of a request that Of can name, besides headers. The query belongs to the path.
const (
	ReusePath = "path"
	ReuseBody = "body"

	reuseHeader     = "header:"
	mostReuseParts  = 32
	longestReuse    = 30 * grammar.Day
	leastReuseBytes = 4 << 10
	mostReuseBytes  = 1 << 30
)

// Compares reports whether jobs must agree in this part of a request to be equal.
func (r *Reuse) Compares(part string) bool { return r.Of == nil || slices.Contains(r.Of, part) }

// ComparedHeaders returns the sorted names of the headers that jobs may set and that weir compares. Trace headers
// differ between jobs, so weir compares them only if the configuration names them.
func (a *API) ComparedHeaders() (names []string) {
	for _, name := range a.ForwardHeaders {
		if a.Reuse.Compares(reuseHeader+name) && (a.Reuse.Of != nil || !isOfTrace(name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// isOfTrace reports whether a header identifies the trace of one job.
func isOfTrace(name string) bool {
	return slices.Contains([]string{ingest.HeaderTrace, ingest.HeaderTraceState, ingest.HeaderBaggage},
		strings.ToLower(name))
}

func (r *Reuse) section(a *API) field.Section {
	return field.Section{
		Fields: []field.Field{
			{
				Name: "for", Is: field.One(&r.For, field.Duration(time.Second, longestReuse)), Needs: "write for: 10m",
				Means: "how old the answer may be. Not longer than `results.max_age`",
			},
			{
				Name: "of", Otherwise: "path, body and every header that jobs may add",
				Is: field.Many(&r.Of, mostReuseParts, field.Type[string]{
					Parse: comparedPart, Show: field.Same, Words: "a list of `path`, `body` and `header:NAME`, at most 32",
					Schema: field.Object{"type": "string", "pattern": "^(path|body|header:.+)$"},
				}),
				Means: "what two jobs must have in common besides the method, byte by byte. The query belongs to the path",
			},
			{
				Name: "across_keys", Is: field.One(&r.AcrossKeys, field.Yes()), Or: "false",
				Means: "`true`: jobs of different keys share answers; with `tenant_until` only keys of one tenant do. Keys share " +
					"answers only if one replica owns their partitions",
			},
			{
				Name: "bytes", Is: field.One(&r.Bytes, field.Size(leastReuseBytes, mostReuseBytes)), Or: "16MiB",
				Means: "the memory in which each replica notes where answers are stored, about 224 bytes for each. It forgets " +
					"the oldest first",
			},
		},
		Check: func(f field.Fields) {
			if f.Fine("of") && r.Of != nil && len(r.Of) == 0 {
				f.Place("of").Fail("compares nothing, so that every job would get the same answer",
					"name what must be equal, or remove the field for all")
			}
			for _, part := range r.Of {
				name, isHeader := strings.CutPrefix(part, reuseHeader)
				if f.Clean() && isHeader && !slices.Contains(a.ForwardHeaders, name) {
					f.Place("of").Fail("no job sends header "+name+" to the api", "name it in forward_headers, or remove it")
				}
			}
			for _, name := range a.ForwardHeaders {
				if f.Clean() && !r.Compares(reuseHeader+name) && !isOfTrace(name) {
					f.Note("jobs that differ only in header "+name+" get the same answer",
						"add header:"+name+" to of if that header changes it")
				}
			}
		},
	}
}

// comparedPart reads the name of a part of a request.
func comparedPart(text string) (string, error) {
	name, isHeader := strings.CutPrefix(text, reuseHeader)
	if !isHeader {
		return grammar.OneOf(ReusePath, ReuseBody, reuseHeader+"NAME")(text)
	}
	name, err := forwardedHeader(name)
	return reuseHeader + name, err
}

// checkReuse warns of an api that reuses answers for longer than weir keeps results.
func (c *Config) checkReuse(f field.Fields) {
	for i := range c.APIs {
		a := &c.APIs[i]
		switch {
		case a.Reuse == nil:
		case a.Reuse.For > c.Results.MaxAge:
			f.Place("apis").Warn(fmt.Sprintf("api %s gives answers again for %s, and results are kept for %s: older answers "+
				"are gone, and their jobs are called", a.Name, grammar.FormatDuration(a.Reuse.For),
				grammar.FormatDuration(c.Results.MaxAge)),
				"write a shorter reuse.for, or a longer results.max_age")
		case c.Results.MaxBody == 0:
			f.Place("results").Warn(fmt.Sprintf("no answer of api %s is given again: results keep nothing of their bodies",
				a.Name), "write results: {max_body: 64KiB}")
		}
	}
}
