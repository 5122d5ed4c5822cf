package config

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
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
	longestAfter       = 7 * day
)

func (q *Inquiry) section() section {
	q.Rate = bucket.Rate{Burst: 1}
	return section{
		fields: []field{
			{name: "method", is: one(&q.Method, word("GET", "HEAD", "POST")), or: "GET", means: "the method of the request"},
			{
				name: "path", is: one(&q.Path, free("a path, optionally with a query", parseInquiryPath)), needs: "write path: /payments/{job}",
				means: "the path of the request. weir replaces `{job}` by the job's id, which is its idempotency key, `{key}` by its key, " +
					"and `{json:/pointer}` by a value of its body",
			},
			{
				name: "answers", is: items(&q.Answers, mostInquiryAnswers, func(a *InquiryAnswer) section { return a.section(q) }),
				needs: "write answers: [{status: 200, means: processed}, {status: 404, means: not_processed}]",
				means: "what answers mean. The first match counts; without a match the outcome stays unknown",
			},
			{name: "rate", is: one(&q.Rate, rate()), or: "1/s", means: "how fast each replica asks; all other limits apply too"},
			{
				name: "after", is: one(&q.After, duration(0, longestAfter)), or: "5m",
				means: "how old a letter must be before weir believes `not_processed`, since an API may process late. Never less than the " +
					"API's `timeout`",
			},
			{
				name: "auto", is: one(&q.Auto, yes()), or: "false",
				means: "`true`: weir asks by itself, first when `after` has passed",
			},
			{
				name: "tries", is: one(&q.Tries, whole(1, 100)), or: "6",
				means: "with `auto`: how many times weir asks; each wait is twice as long as the one before. Then the letter stays",
			},
		},
		check: func(f fields) {
			if f.has("tries") && !q.Auto {
				f.ignored("without auto: true", "tries")
			}
			tells := slices.ContainsFunc(q.Answers, func(a InquiryAnswer) bool { return a.Means != "" })
			if f.has("answers") && !tells {
				f.place("answers").fail("no answer tells anything", "write [{status: 200, means: processed}, {status: 404, means: not_processed}]")
			}
		},
	}
}

// section returns the fields of one meaning of an answer to q.
func (a *InquiryAnswer) section(q *Inquiry) section {
	return a.sectionOf(q.Method, Processed, NotProcessed)
}

// sectionOf returns the fields of one meaning of an answer to a request with this method. The meaning is one of
// findings.
func (a *InquiryAnswer) sectionOf(method string, findings ...Finding) section {
	telling := whole(200, 499).but("200 to 499, except 3xx, 401, 402, 403, 407 and 429", tellingStatus)
	return section{
		fields: []field{
			{name: "status", is: one(&a.Status, telling), needs: "write status: 200", means: "the status of the answer"},
			{
				name: "json", is: one(&a.JSON, free("a JSON pointer", parsePointer)),
				means: "a place in the answer that must have a value other than null",
			},
			{
				name: "values", is: many(&a.Values, mostInquiryValues, of[string]{
					func(text string) (string, error) { return text, nil }, strconv.Quote, "a list", object{},
				}),
				means: "with `json`: the value must be one of these",
			},
			{
				name: "means", is: one(&a.Means, word(findings...)), needs: "write means: " + string(findings[0]) + " or means: " + string(findings[1]),
				means: "what such an answer says of the call, or of its operation",
			},
		},
		check: func(f fields) {
			switch {
			case f.has("values") && !f.has("json"):
				f.place("values").fail("says nothing without json", "write json: /field too: where in the answer one of the values stands")
			case f.has("values") && len(a.Values) == 0:
				f.place("values").fail("holds no value", "write one, or remove the field for any value")
			case f.has("json") && method == "HEAD":
				f.place("json").fail("means nothing for HEAD, whose answers have no body", "write method: GET")
			}
		},
	}
}

// tellingStatus reads a status that says what became of a call, and not only what became of the inquiry.
func tellingStatus(text string) (int, error) {
	n, err := wholeIn(200, 499)(text)
	status := int(n)
	switch {
	case err != nil:
		return 0, refuse("write a status from 200 to 499, such as 200 or 404", "%s cannot tell what became of a call", quote(text))
	case slices.Contains([]int{401, 402, 403, 407, 429}, status) || status >= 300 && status < 400:
		return 0, refuse("remove it", "%d speaks of the inquiry itself, not of the call that is asked about", status)
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
			return false, refuse("write {job}, {key} or {json:/pointer}", "{%s} stands for nothing", name)
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
		return "", refuse(fix, "%s does not begin with a single /", quote(text))
	case len(text) > longestInquiryPath:
		return "", refuse(fix, "is longer than %d bytes", longestInquiryPath)
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }):
		return "", refuse(fix, "%s holds a character that no url can hold", quote(text))
	}
	differs, rest := false, text
	for {
		before, after, found := strings.Cut(rest, "{")
		if strings.Contains(before, "}") {
			return "", refuse(fix, "%s closes a brace that is not open", quote(text))
		}
		if !found {
			break
		}
		name, tail, closed := strings.Cut(after, "}")
		if !closed {
			return "", refuse(fix, "%s has a { without its }", quote(text))
		}
		names, err := check(name)
		if err != nil {
			return "", err
		}
		differs, rest = differs || names, tail
	}
	if !differs {
		return "", refuse(fix, "%s asks about the same whatever the job", quote(text))
	}
	path, _, _ := strings.Cut(text, "?")
	if slices.ContainsFunc(strings.Split(path, "/"), func(s string) bool { return s == "." || s == ".." }) {
		return "", refuse("write the path without . and ..", "%s climbs", quote(text))
	}
	return text, nil
}
