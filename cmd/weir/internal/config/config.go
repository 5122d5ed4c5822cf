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
	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/config/secret"
	"weir/cmd/weir/internal/config/vendors"
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
	Warnings []problem.Problem

	notes      []problem.Problem
	references []field.Reference
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
	longAge  = 3650 * grammar.Day

	mostReplySubjects = 64
)

// Parse reads a configuration. It does not read the environment, and no file except the time zone database. It does not
// check that secrets exist: MissingSecrets does. The error is a *problem.Errors that lists every problem.
func Parse(data []byte, opts Options) (*Config, error) {
	doc, c := &field.Document{}, &Config{site: opts.Site, inForce: opts.Shares}
	if root, ok := doc.Open(data); ok {
		c.section().Read(root)
	}
	file := opts.Name
	if file == "" {
		file = "weir.yaml"
	}
	if len(doc.Problems) > 0 {
		problem.Sort(doc.Problems)
		return nil, &problem.Errors{File: file, Problems: doc.Problems}
	}
	problem.Sort(doc.Warnings)
	c.File, c.Warnings, c.notes, c.references, c.text = file, doc.Warnings, doc.Notes, doc.References, bytes.Clone(data)
	return c, nil
}

// section returns the fields of the file.
func (c *Config) section() field.Section {
	account := func(a *Account) field.Section { return a.section(c.site, c.inForce) }
	return field.Section{
		Fields: []field.Field{
			{
				Name:      "accounts",
				Is:        field.Named(&c.Accounts, mostAccounts, "NAME", account, func(a *Account) *string { return &a.Name }),
				Otherwise: "none",
				Means: "the accounts that several APIs share, with limits that count over all of them " +
					"([accounts](accounts.md))",
			},
			{
				Name: "apis",
				Is: field.Named(&c.APIs, mostAPIs, "NAME", func(a *API) field.Section { return a.section(&c.Accounts) },
					func(a *API) *string { return &a.Name }),
				Otherwise: "none",
				Means:     "the APIs to call. Without any, weir refuses every job",
			},
			{
				Name:  "dead_letters",
				Is:    field.Mapping(c.DeadLetters.section),
				Means: "how long weir keeps letters, and how much room they have",
			},
			{Name: "results", Is: field.Mapping(c.Results.section), Means: "how long weir keeps results, and how much of each"},
			{Name: "http", Is: field.Mapping(c.HTTP.section), Otherwise: "none", Means: "who may use the HTTP interface"},
			{
				Name:      "notifications",
				Otherwise: "none",
				Means:     "where weir posts events besides NATS ([events](events.md#destinations))",
				Is: field.Named(&c.Notifications, mostDestinations, "NAME", (*Destination).section,
					func(d *Destination) *string { return &d.Name }),
			},
			{
				Name: "reply_to", Otherwise: "`[\"_INBOX.>\"]`",
				Is: replyTo(&c.ReplyTo),
				Means: "the subjects that jobs may name in `Weir-Reply-To`. `*` and `>` do not allow the inboxes of the roles " +
					"`worker`, `operator`, `viewer` and `mover` (`_INBOX.operator.…`), except those for outcomes only " +
					"(`_INBOX.operator.ends.…`). A pattern that spells out the prefix of such inboxes allows them. No subject below " +
					"`$` or `weir.` is allowed",
			},
			{
				Name: "dedupe", Is: field.One(&c.Dedupe, field.Duration(time.Second, 7*grammar.Day)), Or: "10m",
				Means: "the shortest time for which weir remembers a job's id. Within this time the same id for the same key is " +
					"the same job",
			},
		},
		Check: func(f field.Fields) {
			if len(c.APIs) == 0 {
				f.Place("apis").Warn("no api is configured: every job is refused", "write one under apis")
			}
			if f.Clean() {
				c.warnOfIDs(f)
				c.warnOfCallbacks(f)
				c.checkReuse(f)
				c.joinAccounts()
				c.warnOfAccounts(f)
			}
		},
	}
}

func (d *DeadLetters) section() field.Section {
	return field.Section{Fields: []field.Field{
		{
			Name:  "max_age",
			Is:    field.One(&d.MaxAge, field.Duration(time.Second, longAge)),
			Or:    "30d",
			Means: "weir drops older letters",
		},
		{
			Name: "max_bytes", Is: field.One(&d.MaxBytes, field.Size(1<<10, 1<<50)), Or: "10GiB",
			Means: "the room for letters. When it is full, weir refuses jobs that would overflow (503); it drops no letter to " +
				"make room",
		},
	}}
}

func (r *Results) section() field.Section {
	return field.Section{Fields: []field.Field{
		{
			Name:  "max_age",
			Is:    field.One(&r.MaxAge, field.Duration(time.Second, longAge)),
			Or:    "24h",
			Means: "weir drops older results",
		},
		{
			Name: "max_body", Is: field.One(&r.MaxBody, field.Size(0, maxBody)), Or: "64KiB",
			Means: "how much of an answer's body weir keeps. The server's `max_payload` must be large enough",
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
	i, found := slices.BinarySearchFunc(c.APIs, name,
		func(a API, name string) int { return strings.Compare(a.Name, name) })
	if !found {
		return nil, false
	}
	return &c.APIs[i], true
}

// replyTo returns the kind of a list of subject patterns.
func replyTo(at *[]string) field.Kind {
	k := field.Many(at, mostReplySubjects, field.Free("at most 64 patterns of NATS subjects", replySubjects))
	show := k.Show
	k.Show = func() string { return cmp.Or(show(), "_INBOX.>") }
	return k
}

// replySubjects reads a pattern of subjects that a job may name in Weir-Reply-To.
func replySubjects(text string) (string, error) {
	tokens := strings.Split(text, ".")
	for i, token := range tokens {
		wild := strings.ContainsAny(token, "*>")
		if token == "" || strings.ContainsFunc(token, unicode.IsSpace) || wild && len(token) > 1 ||
			token == ">" && i < len(tokens)-1 || wild && i == 0 {
			return "",
				problem.Refuse("write a subject like _INBOX.> or reports.*.done, whose first part is no wildcard",
					"%s is not a pattern of subjects", problem.Quote(text))
		}
	}
	if strings.HasPrefix(text, "$") || tokens[0] == "weir" {
		return "", problem.Refuse("name subjects of the producers' own", "%s belongs to NATS or to weir", problem.Quote(text))
	}
	return text, nil
}

// usualPartitions is how many partitions an api has unless WEIR_PARTITIONS says otherwise.
const usualPartitions = 8

// warnOfIDs warns if weir cannot remember the ids of all jobs that may end within dedupe. It checks the jobs of one
// key, which all have one partition, and the jobs of all keys.
func (c *Config) warnOfIDs(f field.Fields) {
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
		f.Place("dedupe").Warn(fmt.Sprintf("as many as %.0f jobs of api %s may end within %s, and each of its partitions "+
			"remembers the ids of %d: "+
			"a job beyond that which is sent again after a restart of its server may be called again", most, a.Name, c.Dedupe,
			queue.SureIDs),
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

// MissingSecrets lists the references that scope does not allow, and those that do not resolve on this machine now. It
// does not read references that scope forbids.
func (c *Config) MissingSecrets(scope *secret.Scope) []problem.Problem {
	var problems []problem.Problem
	for _, r := range c.references {
		problems = append(problems, r.Missing(scope)...)
	}
	problem.Sort(problems)
	return problems
}

// References returns the references to secrets and files in the configuration. A nil Config has none.
func (c *Config) References() (all []secret.Part) {
	for i := 0; c != nil && i < len(c.references); i++ {
		all = append(all, c.references[i].Parts...)
	}
	return all
}

// File returns all fields of weir.yaml.
func File() field.Table { return new(Config).section().Table("", vendors.Lent) }

// Vendors returns the revisions of the profiles that the configuration uses, by vendor.
func (c *Config) Vendors() map[string]string {
	named := map[string]string{}
	for i := range c.APIs {
		if p := vendors.Of(c.APIs[i].Vendor.Name); p != nil {
			named[p.Name] = p.Revision()
		}
	}
	return named
}
