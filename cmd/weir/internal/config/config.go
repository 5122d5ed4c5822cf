package config

import (
	"slices"
	"strings"
	"time"
	"unicode"
)

// Config is a validated configuration. It is not changed after Parse and may be shared between goroutines.
type Config struct {
	APIs          []API // sorted by name
	DeadLetters   DeadLetters
	Results       Results
	Dedupe        time.Duration // how long a job's id is remembered: 1s to 7d
	ReplyTo       []string      // patterns of subjects that jobs may name for the report of their end; none: _INBOX.>
	HTTP          HTTP
	Notifications Notifications

	File string // its name in messages

	// Warnings are settings that are allowed and probably not meant, in the order of the lines.
	Warnings []Problem
}

// DeadLetters bounds the stream of dead letters. When it is full, the intake refuses jobs whose letters would not fit.
type DeadLetters struct {
	MaxAge   time.Duration // 1s to 3650d
	MaxBytes int64         // 1KiB to 1024TiB
}

// Results bounds the stream of results.
type Results struct {
	MaxAge  time.Duration // 1s to 3650d
	MaxBody int64         // bytes of a response that are kept: 0 to 64MiB
}

// Options say how Parse reports.
type Options struct {
	Name string // the file's name in messages; weir.yaml when empty
}

const (
	mostAPIs = 1000
	maxBody  = 64 << 20
	longAge  = 3650 * day

	mostReplySubjects = 64
)

// Parse reads a configuration. It touches neither the environment nor any file but the zone database: secrets need not
// exist, see MissingSecrets. The error is *Errors and has everything that is wrong.
func Parse(data []byte, opts Options) (*Config, error) {
	doc := &document{}
	var c *Config
	if root, ok := doc.open(data); ok {
		c = readConfig(root)
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
	c.File, c.Warnings = file, doc.warnings
	return c, nil
}

func readConfig(root value) *Config {
	c := &Config{
		DeadLetters: DeadLetters{MaxAge: 30 * day, MaxBytes: 10 << 30},
		Results:     Results{MaxAge: 24 * time.Hour, MaxBody: 64 << 10},
	}
	f, ok := root.fields("apis", "dead_letters", "results", "dedupe", "reply_to", "http", "notifications")
	if !ok {
		return c
	}
	c.Dedupe = read(f, "dedupe", 10*time.Minute, durationIn(time.Second, 7*day))
	c.ReplyTo = readList(f, "reply_to", mostReplySubjects, replySubjects)
	if v, ok := f.byName["dead_letters"]; ok {
		letters, _ := v.fields("max_age", "max_bytes")
		c.DeadLetters.MaxAge = read(letters, "max_age", c.DeadLetters.MaxAge, durationIn(time.Second, longAge))
		c.DeadLetters.MaxBytes = read(letters, "max_bytes", c.DeadLetters.MaxBytes, sizeIn(1<<10, 1<<50))
	}
	if v, ok := f.byName["results"]; ok {
		results, _ := v.fields("max_age", "max_body")
		c.Results.MaxAge = read(results, "max_age", c.Results.MaxAge, durationIn(time.Second, longAge))
		c.Results.MaxBody = read(results, "max_body", c.Results.MaxBody, sizeIn(0, maxBody))
	}
	if v, ok := f.byName["http"]; ok {
		c.HTTP = readHTTP(v)
	}
	if v, ok := f.byName["notifications"]; ok {
		c.Notifications = readNotifications(v)
	}
	var entries []entry
	if v, ok := f.byName["apis"]; ok {
		entries, _ = v.entries(mostAPIs)
	}
	if len(entries) == 0 {
		f.place("apis").warn("no api is configured: every job is refused", "write one under apis")
	}
	for _, e := range entries {
		c.APIs = append(c.APIs, readAPI(e))
	}
	slices.SortFunc(c.APIs, func(a, b API) int { return strings.Compare(a.Name, b.Name) })
	c.warnOfIDs(f)
	return c
}

// Names returns the names of the configured apis.
func (c *Config) Names() []string {
	names := make([]string, len(c.APIs))
	for i := range c.APIs {
		names[i] = c.APIs[i].Name
	}
	return names
}

// API returns the api of that name.
func (c *Config) API(name string) (*API, bool) {
	i, found := slices.BinarySearchFunc(c.APIs, name, func(a API, name string) int { return strings.Compare(a.Name, name) })
	if !found {
		return nil, false
	}
	return &c.APIs[i], true
}

// MissingSecrets lists the references that do not resolve on this machine, now, or that scope does not allow: those are
// not read.
func (c *Config) MissingSecrets(scope *SecretScope) []Problem {
	var problems []Problem
	for _, a := range c.APIs {
		for _, h := range a.Headers {
			problems = append(problems, h.missing(scope)...)
		}
		problems = append(problems, a.TLS.missing(scope)...)
	}
	for _, t := range c.HTTP.Tokens {
		problems = append(problems, t.missing(scope)...)
	}
	problems = append(problems, c.Notifications.Webhook.missing(scope)...)
	sortProblems(problems)
	return problems
}

// replySubjects reads a pattern of subjects that jobs may name for the report of their end.
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

// name reads the name of an api or a limit. It becomes part of subjects, stream names and keys of a shared store.
func name(text string) (string, error) {
	if text == "" || len(text) > 64 || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
		return "", refuse("write a-z, 0-9, '-' and '_' only, at most 64", "%s cannot be a name", quote(text))
	}
	return text, nil
}
