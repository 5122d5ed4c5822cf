package config

import (
	"slices"
	"strings"
	"time"

	"weir/bucket"
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
	Path  string        // below the api's url, with {job}, {answer:/pointer} and {answer-header:Name}; or only one of the last two
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
	longestPolled = 31 * day
)

func (o *Operation) section() section {
	accepting := whole(200, 299)
	pointer := free("a JSON pointer", func(text string) (string, error) { return parsePointer(strings.TrimPrefix(text, "json:")) })
	pointer.show = func(at string) string {
		if at == "" {
			return ""
		}
		return "json:" + at
	}
	return section{
		fields: []field{
			{
				name: "accepted", is: many(&o.Accepted, mostAccepted, accepting), or: "[202]",
				means: "the statuses by which the API accepts a call and goes on working",
			},
			{
				name: "poll", is: mapping(o.Poll.section), needs: `write poll: {path: "{answer-header:Location}"}`,
				means: "how weir polls an operation",
			},
			{
				name: "answers", is: items(&o.Answers, mostInquiryAnswers, func(n *InquiryAnswer) section {
					return n.sectionOf("GET", OperationDone, OperationFailed, OperationRunning)
				}),
				needs: "write answers: [{status: 200, json: /state, values: [done], means: done}, {status: 200, means: running}]",
				means: "what answers to polls mean. The first match counts; without a match weir polls again",
			},
			{
				name: "result", is: one(&o.Result, pointer), otherwise: "the whole answer",
				means: "where the final answer has the job's result, as `json:/pointer`",
			},
			{
				name: "hold_slot", is: one(&o.HoldSlot, yes()), or: "false",
				means: "`true`: an operation counts as a call in flight until it has ended, for its key and for every `in_flight` limit",
			},
			{
				name: "cancel", is: optional(&o.Cancel, (*OperationCancel).section), otherwise: "the API is not told",
				means: "how weir tells the API that an operator has cancelled an operation",
			},
		},
		check: func(f fields) {
			if f.has("accepted") && len(o.Accepted) == 0 && f.fine("accepted") {
				f.place("accepted").fail("accepts nothing", "write one status, or remove the field for [202]")
			}
			if f.has("answers") && !slices.ContainsFunc(o.Answers, func(n InquiryAnswer) bool { return n.Means == OperationDone }) {
				f.place("answers").fail("no answer means done", "write {status: 200, json: /state, values: [done], means: done}")
			}
			if o.Poll.For > 0 && o.Poll.Every > o.Poll.For {
				f.place("poll").fail("every is longer than for: no operation would be polled", "write a shorter every")
			}
		},
	}
}

func (p *Poll) section() section {
	p.Rate = bucket.Rate{Burst: 1}
	return section{
		fields: []field{
			{
				name: "path", is: one(&p.Path, free("a path, optionally with a query", parseOperationPath)), needs: "write path: \"{answer-header:Location}\"",
				means: "where an operation is polled, with GET. weir replaces `{job}` by the job's id, `{answer:/pointer}` by a value of the " +
					"answer that accepted the call, and `{answer-header:Name}` by a header of it. A path that consists only of " +
					"`{answer:/pointer}` or of `{answer-header:Name}` may be a whole address",
			},
			{name: "every", is: one(&p.Every, duration(time.Second, day)), or: "5s", means: "the time between two polls of one operation"},
			{name: "rate", is: one(&p.Rate, rate()), or: "1/s", means: "how fast each replica polls, over all operations of the API"},
			{
				name: "for", is: one(&p.For, duration(time.Second, longestPolled)), or: "24h",
				means: "how long after its call weir polls an operation. Then its job becomes a letter `unknown`",
			},
			{
				name: "hosts", is: many(&p.Hosts, mostPollHosts, free("at most 16 addresses", parsePollHost)), otherwise: "only that of `url`",
				means: "other places where operations may be polled, as `https://host`. weir sends no header with a secret there",
			},
		},
	}
}

func (c *OperationCancel) section() section {
	return section{
		fields: []field{
			{name: "method", is: one(&c.Method, word("DELETE", "POST", "PUT", "PATCH")), or: "DELETE", means: "the method of the request"},
			{
				name: "path", is: one(&c.Path, free("a path, optionally with a query", parseOperationPath)), otherwise: "where the operation is polled",
				means: "the path of the request, with the same placeholders as `poll.path`",
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
				return false, refuse(fix, "%s is no header's name", quote(header))
			}
			return true, nil
		}
		if name != "job" {
			return false, refuse("write {job}, {answer:/pointer} or {answer-header:Location}", "{%s} stands for nothing", name)
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
		return "", refuse(fix, "is not the address of a host")
	case u.Path != "":
		return "", refuse(fix, "has a path")
	}
	host := strings.ToLower(u.Host)
	if u.Port() == map[string]string{"http": "80", "https": "443"}[u.Scheme] {
		host = strings.TrimSuffix(host, ":"+u.Port())
	}
	return u.Scheme + "://" + host, nil
}
