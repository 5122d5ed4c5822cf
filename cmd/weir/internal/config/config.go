package config

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"weir/bucket"
	"weir/bucket/queue"
)

// Config is a validated configuration. It does not change after Parse, so goroutines may share it.
type Config struct {
	Accounts      []Account // sorted by name
	APIs          []API     // sorted by name
	DeadLetters   DeadLetters
	Results       Results
	Dedupe        time.Duration // how long weir remembers a job's id: 1s to 7d
	ReplyTo       []string      // patterns of subjects that a job may name in Weir-Reply-To; none: _INBOX.>
	HTTP          HTTP
	Notifications []Destination // sorted by name

	File string // the file's name in messages
	// Version orders configurations: a later one has a greater Version. 0 means that the configuration is not in force.
	Version int64

	// Warnings are about settings that are allowed but probably a mistake. They are in the order of the lines.
	Warnings []Problem

	notes      []Problem
	references []reference
	text       []byte // the file's content, for describe
	site       string
	inForce    map[string]int64
}

// DeadLetters bounds the stream of dead letters. When it is full, the intake refuses jobs whose letters would not fit.
type DeadLetters struct {
	MaxAge   time.Duration // 1s to 3650d
	MaxBytes int64         // 1KiB to 1024TiB
}

// Results bounds the stream of results.
type Results struct {
	MaxAge  time.Duration // 1s to 3650d
	MaxBody int64         // how many bytes of an answer weir keeps: 0 to 64MiB
}

// Options say what Parse does not find in the file.
type Options struct {
	Name string // the file's name in messages; empty: weir.yaml
	// Site is the site for which the configuration is read; empty: not known. Shares are the shares in force at that site,
	// by account. An account that is missing there has the share in the file.
	Site   string
	Shares map[string]int64
}

const (
	mostAPIs = 1000
	maxBody  = 64 << 20
	longAge  = 3650 * day

	mostReplySubjects = 64
)

// Parse reads a configuration. It does not read the environment, and no file except the time zone database. It does not
// check that secrets exist: MissingSecrets does. The error is an *Errors that lists every problem.
func Parse(data []byte, opts Options) (*Config, error) {
	doc, c := &document{site: opts.Site, inForce: opts.Shares}, &Config{site: opts.Site, inForce: opts.Shares}
	if root, ok := doc.open(data); ok {
		c.section().read(root)
	}
	file := opts.Name
	if file == "" {
		file = "weir.yaml"
	}
	if len(doc.problems) > 0 {
		sortProblems(doc.problems)
		return nil, &Errors{File: file, Problems: doc.problems}
	}
	sortProblems(doc.warnings)
	c.File, c.Warnings, c.notes, c.references, c.text = file, doc.warnings, doc.notes, doc.references, bytes.Clone(data)
	return c, nil
}

// section returns the fields of the file.
func (c *Config) section() section {
	return section{
		fields: []field{
			{
				name: "accounts", is: named(&c.Accounts, mostAccounts, "NAME", (*Account).section, func(a *Account) *string { return &a.Name }), otherwise: "none",
				means: "the accounts that several APIs share, with limits that count over all of them ([accounts](accounts.md))",
			},
			{
				name: "apis", is: named(&c.APIs, mostAPIs, "NAME", func(a *API) section { return a.section(&c.Accounts) }, func(a *API) *string { return &a.Name }), otherwise: "none",
				means: "the APIs to call. Without any, weir refuses every job",
			},
			{name: "dead_letters", is: mapping(c.DeadLetters.section), means: "how long weir keeps letters, and how much room they have"},
			{name: "results", is: mapping(c.Results.section), means: "how long weir keeps results, and how much of each"},
			{name: "http", is: mapping(c.HTTP.section), otherwise: "none", means: "who may use the HTTP interface"},
			{
				name: "notifications", otherwise: "none", means: "where weir posts events besides NATS ([events](events.md#destinations))",
				is: named(&c.Notifications, mostDestinations, "NAME", (*Destination).section, func(d *Destination) *string { return &d.Name }),
			},
			{
				name: "reply_to", otherwise: "`[\"_INBOX.>\"]`",
				is: replyTo(&c.ReplyTo),
				means: "the subjects that jobs may name in `Weir-Reply-To`. `*` and `>` do not allow the inboxes of the roles `worker`, " +
					"`operator`, `viewer` and `mover` (`_INBOX.operator.…`), except those for outcomes only (`_INBOX.operator.ends.…`). " +
					"A pattern that spells out the prefix of such inboxes allows them. No subject below `$` or `weir.` is allowed",
			},
			{
				name: "dedupe", is: one(&c.Dedupe, duration(time.Second, 7*day)), or: "10m",
				means: "the shortest time for which weir remembers a job's id. Within this time the same id for the same key is the same job",
			},
		},
		check: func(f fields) {
			if len(c.APIs) == 0 {
				f.place("apis").warn("no api is configured: every job is refused", "write one under apis")
			}
			if f.clean() {
				c.warnOfIDs(f)
				c.warnOfCallbacks(f)
				c.checkReuse(f)
				c.joinAccounts()
				c.warnOfAccounts(f)
			}
		},
	}
}

func (d *DeadLetters) section() section {
	return section{fields: []field{
		{name: "max_age", is: one(&d.MaxAge, duration(time.Second, longAge)), or: "30d", means: "weir drops older letters"},
		{
			name: "max_bytes", is: one(&d.MaxBytes, size(1<<10, 1<<50)), or: "10GiB",
			means: "the room for letters. When it is full, weir refuses jobs that would overflow (503); it drops no letter to make room",
		},
	}}
}

func (r *Results) section() section {
	return section{fields: []field{
		{name: "max_age", is: one(&r.MaxAge, duration(time.Second, longAge)), or: "24h", means: "weir drops older results"},
		{
			name: "max_body", is: one(&r.MaxBody, size(0, maxBody)), or: "64KiB",
			means: "how much of an answer's body weir keeps. The server's `max_payload` must be large enough",
		},
	}}
}

// Names returns the names of the configured apis, sorted.
func (c *Config) Names() []string {
	names := make([]string, len(c.APIs))
	for i := range c.APIs {
		names[i] = c.APIs[i].Name
	}
	return names
}

// API returns the api called name. The bool is false if there is none.
func (c *Config) API(name string) (*API, bool) {
	i, found := slices.BinarySearchFunc(c.APIs, name, func(a API, name string) int { return strings.Compare(a.Name, name) })
	if !found {
		return nil, false
	}
	return &c.APIs[i], true
}

// replyTo returns the kind of a list of subject patterns.
func replyTo(at *[]string) kind {
	k := many(at, mostReplySubjects, free("at most 64 patterns of NATS subjects", replySubjects))
	show := k.show
	k.show = func() string { return cmp.Or(show(), "_INBOX.>") }
	return k
}

// replySubjects reads a pattern of subjects that a job may name in Weir-Reply-To.
func replySubjects(text string) (string, error) {
	tokens := strings.Split(text, ".")
	for i, token := range tokens {
		wild := strings.ContainsAny(token, "*>")
		if token == "" || strings.ContainsFunc(token, unicode.IsSpace) || wild && len(token) > 1 || token == ">" && i < len(tokens)-1 || wild && i == 0 {
			return "", refuse("write a subject like _INBOX.> or reports.*.done, whose first part is no wildcard", "%s is not a pattern of subjects", quote(text))
		}
	}
	if strings.HasPrefix(text, "$") || tokens[0] == "weir" {
		return "", refuse("name subjects of the producers' own", "%s belongs to NATS or to weir", quote(text))
	}
	return text, nil
}

// parseName reads the name of an api or a limit. The name becomes part of subjects, stream names and Redis keys.
func parseName(text string) (string, error) {
	if text == "" || len(text) > 64 || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
		return "", refuse("write a-z, 0-9, '-' and '_' only, at most 64", "%s cannot be a name", quote(text))
	}
	return text, nil
}

// usualPartitions is how many partitions an api has unless WEIR_PARTITIONS says otherwise.
const usualPartitions = 8

// warnOfIDs warns if weir cannot remember the ids of all jobs that may end within dedupe. It checks the jobs of one
// key, which all have one partition, and the jobs of all keys.
func (c *Config) warnOfIDs(f fields) {
	for i := range c.APIs {
		a := &c.APIs[i]
		all := math.Inf(1)
		for _, l := range a.Rules.Shared {
			switch l.Kind() {
			case bucket.KindRate:
				all = min(all, c.endsOf(*l.Rate)/float64(max(1, l.Cost.Usual())))
			case bucket.KindQuota, bucket.KindInFlight, bucket.KindBudget: // they do not bound the ends within dedupe
			}
		}
		one := min(all, c.endsOf(a.Rules.Key.Rate))
		if one <= queue.SureIDs && (math.IsInf(all, 1) || all <= usualPartitions*queue.SureIDs) {
			continue
		}
		most := all
		if math.IsInf(all, 1) {
			most = one
		}
		f.place("dedupe").warn(fmt.Sprintf("as many as %.0f jobs of api %s may end within %s, and each of its partitions remembers the ids of %d: "+
			"a job beyond that which is sent again after a restart of its server may be called again", most, a.Name, c.Dedupe, queue.SureIDs),
			"lower dedupe")
	}
}

// endsOf returns how many jobs can end within dedupe at a rate.
func (c *Config) endsOf(r bucket.Rate) float64 {
	if r.Per <= 0 {
		return 0
	}
	return float64(r.Count) * c.Dedupe.Seconds() / r.Per.Seconds()
}
