package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
)

// Inquiry says how to ask an api what became of a call with an unknown outcome. A nil *Inquiry says that the api cannot
// be asked.
type Inquiry struct {
	Method  string          // GET, HEAD or POST
	Path    string          // below the api's url, optionally with a query; {job}, {key} and {json:/pointer} stand for the letter's
	Answers []InquiryAnswer // the first that matches decides; without a match the outcome stays unknown
	Rate    bucket.Rate     // of inquiries, by each replica
	After   time.Duration   // time after the letter from which "not processed" is believed: 0 to 7d
	Auto    bool            // weir asks by itself
	Tries   int             // of Auto: 1 to 100
}

// Finding is what an answer to an inquiry means.
type Finding string

// The findings that an answer can mean; any other answer leaves it unknown.
const (
	Processed    Finding = "processed"
	NotProcessed Finding = "not_processed"
)

// InquiryAnswer says what some answers to an inquiry mean.
type InquiryAnswer struct {
	Status int      // 200 to 499
	JSON   string   // a pointer into the body, "" for none: the answer must have a value there that is not null
	Values []string // if any: one of them
	Means  Finding
}

// Bounds of an inquiry.
const (
	mostInquiryAnswers = 32
	mostInquiryValues  = 64
	longestInquiryPath = 1024
	longestAfter       = 7 * day
)

func readInquiry(f fields) *Inquiry {
	v, ok := f.byName["inquiry"]
	if !ok {
		return nil
	}
	inquiry, ok := v.fields("method", "path", "answers", "rate", "after", "auto", "tries")
	if ok {
		inquiry.require("path", "write path: /payments/{job}")
		inquiry.require("answers", "write answers: [{status: 200, means: processed}, {status: 404, means: not_processed}]")
	}
	q := &Inquiry{
		Method: read(inquiry, "method", "GET", oneOf("GET", "HEAD", "POST")),
		Path:   read(inquiry, "path", "", parseInquiryPath),
		Rate:   read(inquiry, "rate", bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, ParseRate),
		After:  read(inquiry, "after", 5*time.Minute, durationIn(0, longestAfter)),
		Auto:   read(inquiry, "auto", false, yesOrNo),
		Tries:  int(read(inquiry, "tries", 6, wholeIn(1, 100))),
	}
	if inquiry.has("tries") && !q.Auto {
		inquiry.ignored("without auto: true", "tries")
	}
	if answers, ok := inquiry.byName["answers"]; ok {
		for _, item := range answers.list(mostInquiryAnswers) {
			q.Answers = append(q.Answers, readInquiryAnswer(item, q.Method))
		}
	}
	means := func(f Finding) bool {
		return slices.ContainsFunc(q.Answers, func(a InquiryAnswer) bool { return a.Means == f })
	}
	if inquiry.has("answers") && !means(Processed) && !means(NotProcessed) {
		inquiry.place("answers").fail("no answer tells anything", "write [{status: 200, means: processed}, {status: 404, means: not_processed}]")
	}
	return q
}

func readInquiryAnswer(v value, method string) InquiryAnswer {
	f, ok := v.fields("status", "json", "values", "means")
	if ok {
		f.require("status", "write status: 200")
		f.require("means", "write means: processed or means: not_processed")
	}
	a := InquiryAnswer{
		Status: read(f, "status", 0, tellingStatus), JSON: read(f, "json", "", parsePointer), Means: read(f, "means", "", oneOf(Processed, NotProcessed)),
		Values: readList(f, "values", mostInquiryValues, func(text string) (string, error) { return text, nil }),
	}
	switch {
	case f.has("values") && !f.has("json"):
		f.place("values").fail("says nothing without json", "write json: /field too: where in the answer one of the values stands")
	case f.has("values") && len(a.Values) == 0:
		f.place("values").fail("holds no value", "write one, or remove the field for any value")
	case f.has("json") && method == "HEAD":
		f.place("json").fail("means nothing for HEAD, whose answers have no body", "write method: GET")
	}
	return a
}

// tellingStatus reads a status that can say what became of a call.
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

// parseInquiryPath reads a path below the api's url, with placeholders for the letter's values in braces.
func parseInquiryPath(text string) (string, error) {
	const fix = "write a path such as /payments/{job} or /search?reference={json:/order/id}"
	switch {
	case !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//"):
		return "", refuse(fix, "%s does not begin with a single /", quote(text))
	case len(text) > longestInquiryPath:
		return "", refuse(fix, "is longer than %d bytes", longestInquiryPath)
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }):
		return "", refuse(fix, "%s has a letter that no url has", quote(text))
	}
	names, rest := 0, text
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
		if pointer, ok := strings.CutPrefix(name, "json:"); ok {
			if _, err := parsePointer(pointer); err != nil {
				return "", err
			}
		} else if name != "job" && name != "key" {
			return "", refuse("write {job}, {key} or {json:/pointer}", "{%s} stands for nothing", name)
		}
		if name != "key" {
			names++
		}
		rest = tail
	}
	if names == 0 {
		return "", refuse(fix, "%s asks about the same whatever the job", quote(text))
	}
	path, _, _ := strings.Cut(text, "?")
	if slices.ContainsFunc(strings.Split(path, "/"), func(s string) bool { return s == "." || s == ".." }) {
		return "", refuse("write the path without . and ..", "%s climbs", quote(text))
	}
	return text, nil
}

// inquiry describes how an api is asked.
func (d description) inquiry(path string, q *Inquiry) {
	if q == nil {
		return
	}
	d[path] = q.Method + " " + q.Path
	d.set(path, "method", q.Method)
	d.set(path, "path", q.Path)
	d.set(path, "rate", FormatRate(q.Rate))
	d.duration(path, "after", q.After)
	d.yes(path, "auto", q.Auto)
	d.number(path, "tries", int64(q.Tries))
	for i, a := range q.Answers {
		text := strconv.Itoa(a.Status)
		if a.JSON != "" {
			text += " with " + a.JSON
		}
		if len(a.Values) > 0 {
			text += fmt.Sprintf(" %q", a.Values)
		}
		d[path+".answers["+strconv.Itoa(i)+"]"] = text + " means " + string(a.Means)
	}
}
