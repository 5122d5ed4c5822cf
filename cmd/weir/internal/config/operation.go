package config

import (
	"slices"
	"strings"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"
)

// Operation says how weir polls an api that accepts a call and then goes on working on it. A nil *Operation means that
// every answer is final.
type Operation struct {
	Accepted []int // statuses of answers that begin an operation: 200 to 299
	Poll     Poll
	Answers  []InquiryAnswer // to polls; the first that matches decides; if none matches, weir polls again
	Result   string          // a pointer to the job's result in the final answer; "": the whole answer
	HoldSlot bool            // the operation counts as a call in flight until it ends
	Cancel   *OperationCancel
}

// Poll says how weir polls operations.
type Poll struct {
	// Path is below the api's url, with {job}, {answer:/pointer} and {answer-header:Name}; or only one of the last two.
	Path  string
	Every time.Duration // between two polls of one operation: 1s to 1d
	Rate  bucket.Rate   // of all polls of each replica
	For   time.Duration // how long after the call weir gives up: 1s to 31d
	Hosts []string      // scheme and host of other places where weir may poll
}

// OperationCancel says how weir asks the api to cancel an operation.
type OperationCancel struct {
	Method string
	Path   string // as in Poll; "": the address of the polls
}

// The findings of polls. weir polls again after an answer that means none of them.
const (
	OperationDone    Finding = "done"
	OperationFailed  Finding = "failed"
	OperationRunning Finding = "running"
)

// Bounds of an operation.
const (
	mostAccepted  = 16
	mostPollHosts = 16
	longestPolled = 31 * grammar.Day
)

func (o *Operation) section() field.Section {
	accepting := field.Whole(200, 299)
	pointer := field.Free("a JSON pointer",
		func(text string) (string, error) { return parsePointer(strings.TrimPrefix(text, "json:")) })
	pointer.Show = func(at string) string {
		if at == "" {
			return ""
		}
		return "json:" + at
	}
	return field.Section{
		Fields: []field.Field{
			{
				Name: "accepted", Is: field.Many(&o.Accepted, mostAccepted, accepting), Or: "[202]",
				Means: "the statuses by which the API accepts a call and goes on working",
			},
			{
				Name: "poll", Is: field.Mapping(o.Poll.section), Needs: `write poll: {path: "{answer-header:Location}"}`,
				Means: "how weir polls an operation",
			},
			{
				Name: "answers", Is: field.Items(&o.Answers, mostInquiryAnswers, func(n *InquiryAnswer) field.Section {
					return n.sectionOf("GET", OperationDone, OperationFailed, OperationRunning)
				}),
				Needs: "write answers: [{status: 200, json: /state, values: [done], means: done}, {status: 200, means: running}]",
				Means: "what answers to polls mean. The first match counts; without a match weir polls again",
			},
			{
				Name: "result", Is: field.One(&o.Result, pointer), Otherwise: "the whole answer",
				Means: "where the final answer has the job's result, as `json:/pointer`",
			},
			{
				Name: "hold_slot", Is: field.One(&o.HoldSlot, field.Yes()), Or: "false",
				Means: "`true`: an operation counts as a call in flight until it has ended, for its key and for every " +
					"`in_flight` limit",
			},
			{
				Name: "cancel", Is: field.Optional(&o.Cancel, (*OperationCancel).section), Otherwise: "the API is not told",
				Means: "how weir tells the API that an operator has cancelled an operation",
			},
		},
		Check: func(f field.Fields) {
			if f.Has("accepted") && len(o.Accepted) == 0 && f.Fine("accepted") {
				f.Place("accepted").Fail("accepts nothing", "write one status, or remove the field for [202]")
			}
			if f.Has("answers") &&
				!slices.ContainsFunc(o.Answers, func(n InquiryAnswer) bool { return n.Means == OperationDone }) {
				f.Place("answers").Fail("no answer means done", "write {status: 200, json: /state, values: [done], means: done}")
			}
			if o.Poll.For > 0 && o.Poll.Every > o.Poll.For {
				f.Place("poll").Fail("every is longer than for: no operation would be polled", "write a shorter every")
			}
		},
	}
}

func (p *Poll) section() field.Section {
	p.Rate = bucket.Rate{Burst: 1}
	return field.Section{
		Fields: []field.Field{
			{
				Name:  "path",
				Is:    field.One(&p.Path, field.Free("a path, optionally with a query", parseOperationPath)),
				Needs: "write path: \"{answer-header:Location}\"",
				Means: "where an operation is polled, with GET. weir replaces `{job}` by the job's id, `{answer:/pointer}` by a " +
					"value of the answer that accepted the call, and `{answer-header:Name}` by a header of it. A path that consists " +
					"only of `{answer:/pointer}` or of `{answer-header:Name}` may be a whole address",
			},
			{
				Name:  "every",
				Is:    field.One(&p.Every, field.Duration(time.Second, grammar.Day)),
				Or:    "5s",
				Means: "the time between two polls of one operation",
			},
			{
				Name:  "rate",
				Is:    field.One(&p.Rate, field.Rate()),
				Or:    "1/s",
				Means: "how fast each replica polls, over all operations of the API",
			},
			{
				Name: "for", Is: field.One(&p.For, field.Duration(time.Second, longestPolled)), Or: "24h",
				Means: "how long after its call weir polls an operation. Then its job becomes a letter `unknown`",
			},
			{
				Name:      "hosts",
				Is:        field.Many(&p.Hosts, mostPollHosts, field.Free("at most 16 addresses", parsePollHost)),
				Otherwise: "only that of `url`",
				Means: "other places where operations may be polled, as `https://host`. weir sends no header with a secret " +
					"there",
			},
		},
	}
}

func (c *OperationCancel) section() field.Section {
	return field.Section{
		Fields: []field.Field{
			{
				Name:  "method",
				Is:    field.One(&c.Method, field.Word("DELETE", "POST", "PUT", "PATCH")),
				Or:    "DELETE",
				Means: "the method of the request",
			},
			{
				Name:      "path",
				Is:        field.One(&c.Path, field.Free("a path, optionally with a query", parseOperationPath)),
				Otherwise: "where the operation is polled",
				Means:     "the path of the request, with the same placeholders as `poll.path`",
			},
		},
	}
}

// parseOperationPath reads the path or the placeholder that says where to poll an operation.
func parseOperationPath(text string) (string, error) {
	const fix = `write "{answer-header:Location}", or a path such as /operations/{answer:/id}`
	return parseTemplatePath(text, fix, func(name string) (names bool, err error) {
		if pointer, ok := strings.CutPrefix(name, "answer:"); ok {
			_, err := parsePointerAs("{answer:/field/subfield}", pointer)
			return true, err
		}
		if header, ok := strings.CutPrefix(name, "answer-header:"); ok {
			if !isToken(header) {
				return false, problem.Refuse(fix, "%s is no header's name", problem.Quote(header))
			}
			return true, nil
		}
		if name != "job" {
			return false,
				problem.Refuse("write {job}, {answer:/pointer} or {answer-header:Location}", "{%s} stands for nothing", name)
		}
		return true, nil
	})
}

// parsePollHost reads the scheme and host of a place where weir may poll operations.
func parsePollHost(text string) (string, error) {
	const fix = "write https://host, without a path"
	u, err := parseURL(text)
	switch {
	case err != nil:
		return "", problem.Refuse(fix, "is not the address of a host")
	case u.Path != "":
		return "", problem.Refuse(fix, "has a path")
	}
	host := strings.ToLower(u.Host)
	if u.Port() == map[string]string{"http": "80", "https": "443"}[u.Scheme] {
		host = strings.TrimSuffix(host, ":"+u.Port())
	}
	return u.Scheme + "://" + host, nil
}
