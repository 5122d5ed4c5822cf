package config

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"
)

// Inquiry says how to ask an api what became of a call whose outcome is unknown. A nil *Inquiry means that the api
// cannot be asked.
type Inquiry struct {
	Method  string          // GET, HEAD or POST
	Path    string          // below the api's url, optionally with a query; placeholders stand for values of the letter
	Answers []InquiryAnswer // the first that matches decides; if none matches, the outcome stays unknown
	Rate    bucket.Rate     // of the inquiries of each replica
	After   time.Duration   // "not processed" counts only this long after the letter: 0 to 7d
	Auto    bool            // weir asks without an operator
	Tries   int             // of automatic inquiries: 1 to 100
}

// Finding is what an answer to an inquiry means.
type Finding string

// The findings. An answer that means neither leaves the outcome unknown.
const (
	Processed    Finding = "processed"
	NotProcessed Finding = "not_processed"
)

// InquiryAnswer says what an answer to an inquiry means if it has this status and, optionally, this content.
type InquiryAnswer struct {
	Status int      // 200 to 499
	JSON   string   // a pointer into the body, or "": the answer must have a non-null value there
	Values []string // if not empty, the value must be one of these
	Means  Finding
}

// Bounds of an inquiry.
const (
	mostInquiryAnswers = 32
	mostInquiryValues  = 64
	longestInquiryPath = 1024
	longestAfter       = 7 * grammar.Day
)

func (q *Inquiry) section() field.Section {
	q.Rate = bucket.Rate{Burst: 1}
	return field.Section{
		Fields: []field.Field{
			{
				Name:  "method",
				Is:    field.One(&q.Method, field.Word("GET", "HEAD", "POST")),
				Or:    "GET",
				Means: "the method of the request",
			},
			{
				Name:  "path",
				Is:    field.One(&q.Path, field.Free("a path, optionally with a query", parseInquiryPath)),
				Needs: "write path: /payments/{job}",
				Means: "the path of the request. weir replaces `{job}` by the job's id, which is its idempotency key, `{key}` by " +
					"its key, and `{json:/pointer}` by a value of its body",
			},
			{
				Name:  "answers",
				Is:    field.Items(&q.Answers, mostInquiryAnswers, func(a *InquiryAnswer) field.Section { return a.section(q) }),
				Needs: "write answers: [{status: 200, means: processed}, {status: 404, means: not_processed}]",
				Means: "what answers mean. The first match counts; without a match the outcome stays unknown",
			},
			{
				Name:  "rate",
				Is:    field.One(&q.Rate, field.Rate()),
				Or:    "1/s",
				Means: "how fast each replica asks; all other limits apply too",
			},
			{
				Name: "after", Is: field.One(&q.After, field.Duration(0, longestAfter)), Or: "5m",
				Means: "how old a letter must be before weir believes `not_processed`, since an API may process late. Never less " +
					"than the API's `timeout`",
			},
			{
				Name: "auto", Is: field.One(&q.Auto, field.Yes()), Or: "false",
				Means: "`true`: weir asks by itself, first when `after` has passed",
			},
			{
				Name: "tries", Is: field.One(&q.Tries, field.Whole(1, 100)), Or: "6",
				Means: "with `auto`: how many times weir asks; each wait is twice as long as the one before. Then the letter stays",
			},
		},
		Check: func(f field.Fields) {
			if f.Has("tries") && !q.Auto {
				f.Ignored("without auto: true", "tries")
			}
			tells := slices.ContainsFunc(q.Answers, func(a InquiryAnswer) bool { return a.Means != "" })
			if f.Has("answers") && !tells {
				f.Place("answers").Fail("no answer tells anything",
					"write [{status: 200, means: processed}, {status: 404, means: not_processed}]")
			}
		},
	}
}

// section returns the fields of one meaning of an answer to q.
func (a *InquiryAnswer) section(q *Inquiry) field.Section {
	return a.sectionOf(q.Method, Processed, NotProcessed)
}

// sectionOf returns the fields of one meaning of an answer to a request with this method. The meaning is one of
// findings.
func (a *InquiryAnswer) sectionOf(method string, findings ...Finding) field.Section {
	telling := field.Whole(200, 499).But("200 to 499, except 3xx, 401, 402, 403, 407 and 429", tellingStatus)
	return field.Section{
		Fields: []field.Field{
			{Name: "status", Is: field.One(&a.Status, telling), Needs: "write status: 200", Means: "the status of the answer"},
			{
				Name: "json", Is: field.One(&a.JSON, field.Free("a JSON pointer", parsePointer)),
				Means: "a place in the answer that must have a value other than null",
			},
			{
				Name: "values", Is: field.Many(&a.Values, mostInquiryValues, field.Type[string]{
					Parse:  func(text string) (string, error) { return text, nil },
					Show:   strconv.Quote,
					Words:  "a list",
					Schema: field.Object{},
				}),
				Means: "with `json`: the value must be one of these",
			},
			{
				Name:  "means",
				Is:    field.One(&a.Means, field.Word(findings...)),
				Needs: "write means: " + string(findings[0]) + " or means: " + string(findings[1]),
				Means: "what such an answer says of the call, or of its operation",
			},
		},
		Check: func(f field.Fields) {
			switch {
			case f.Has("values") && !f.Has("json"):
				f.Place("values").Fail("says nothing without json",
					"write json: /field too: where in the answer one of the values stands")
			case f.Has("values") && len(a.Values) == 0:
				f.Place("values").Fail("holds no value", "write one, or remove the field for any value")
			case f.Has("json") && method == "HEAD":
				f.Place("json").Fail("means nothing for HEAD, whose answers have no body", "write method: GET")
			}
		},
	}
}

// tellingStatus reads a status that says what became of a call, and not only what became of the inquiry.
func tellingStatus(text string) (int, error) {
	n, err := grammar.WholeIn(200, 499)(text)
	status := int(n)
	switch {
	case err != nil:
		return 0,
			problem.Refuse("write a status from 200 to 499, such as 200 or 404", "%s cannot tell what became of a call",
				problem.Quote(text))
	case slices.Contains([]int{401, 402, 403, 407, 429}, status) || status >= 300 && status < 400:
		return 0, problem.Refuse("remove it", "%d speaks of the inquiry itself, not of the call that is asked about", status)
	}
	return status, nil
}

// parseInquiryPath reads a path below the api's url. Placeholders in braces stand for values of the letter.
func parseInquiryPath(text string) (string, error) {
	const fix = "write a path such as /payments/{job} or /search?reference={json:/order/id}"
	return parseTemplatePath(text, fix, func(name string) (names bool, err error) {
		if pointer, ok := strings.CutPrefix(name, "json:"); ok {
			_, err := parsePointerAs("{json:/field/subfield}", pointer)
			return true, err
		}
		if name != "job" && name != "key" {
			return false, problem.Refuse("write {job}, {key} or {json:/pointer}", "{%s} stands for nothing", name)
		}
		return name != "key", nil
	})
}

// parseTemplatePath reads a path below an api's url, with placeholders in braces. check checks a placeholder's name,
// and reports whether its value differs between jobs. A path that is one placeholder beginning with answer stands for a
// whole address.
func parseTemplatePath(text, fix string, check func(name string) (names bool, err error)) (string, error) {
	whole := strings.HasPrefix(text, "{answer") && strings.HasSuffix(text, "}") && strings.Count(text, "{") == 1
	switch {
	case !whole && (!strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//")):
		return "", problem.Refuse(fix, "%s does not begin with a single /", problem.Quote(text))
	case len(text) > longestInquiryPath:
		return "", problem.Refuse(fix, "is longer than %d bytes", longestInquiryPath)
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }):
		return "", problem.Refuse(fix, "%s holds a character that no url can hold", problem.Quote(text))
	}
	differs, rest := false, text
	for {
		before, after, found := strings.Cut(rest, "{")
		if strings.Contains(before, "}") {
			return "", problem.Refuse(fix, "%s closes a brace that is not open", problem.Quote(text))
		}
		if !found {
			break
		}
		name, tail, closed := strings.Cut(after, "}")
		if !closed {
			return "", problem.Refuse(fix, "%s has a { without its }", problem.Quote(text))
		}
		names, err := check(name)
		if err != nil {
			return "", err
		}
		differs, rest = differs || names, tail
	}
	if !differs {
		return "", problem.Refuse(fix, "%s asks about the same whatever the job", problem.Quote(text))
	}
	path, _, _ := strings.Cut(text, "?")
	if slices.ContainsFunc(strings.Split(path, "/"), func(s string) bool { return s == "." || s == ".." }) {
		return "", problem.Refuse("write the path without . and ..", "%s climbs", problem.Quote(text))
	}
	return text, nil
}
