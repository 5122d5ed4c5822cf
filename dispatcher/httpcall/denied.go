package httpcall

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"weir/deadletter"
	"weir/dispatcher/schedule"
)

// DeniedCall is the outcome of a call whose answer is about weir and not about the job: about weir's credentials,
// account or url for the api. The api has done nothing and charges nothing. It would answer every other call the same.
// So weir holds the whole api, whatever the scope of pushback, and lets one call try again. A call whose configured
// headers cannot be read is not sent, and has the same outcome.
const DeniedCall = "denied"

// longestHost is the longest host of a redirect that is reported.
const longestHost = 253

// denies reports whether a status is about weir's access. A redirect is, because weir follows none. By RFC 9110 section
// 15.4 each redirect, known or not, says that something else must be done before the request is fulfilled. Only 303 and
// 304 say that something is done.
func denies(status int) bool {
	switch status {
	case 401, 402, 403, 407:
		return true
	case 303, 304:
		return false
	}
	return status >= 300 && status < 400
}

// denial returns the outcome of a denied call. It contains what an operator must do.
func denial(api *API, r Response) Outcome {
	return Outcome{
		Verdict: Denied, Billed: deadletter.NotBilled, Detail: fmt.Sprintf("the api answered %d: %s", r.Status, denialOf(r)),
		Mend: mending(api, r),
	}
}

// unreadable returns the outcome of a call that was not sent because its configured headers cannot be read.
func unreadable(api *API, r Response) Outcome {
	return Outcome{
		Verdict: Denied, Billed: deadletter.NotBilled, Detail: fmt.Sprintf("nothing was sent: %v", r.Err),
		Mend: fmt.Sprintf("restore the secrets of api %s; weir then continues by itself, or at once after weir resume %s", api.Name, api.Name),
	}
}

// denialOf returns in words what the status of a denial means.
func denialOf(r Response) string {
	switch r.Status {
	case 401:
		return "it does not accept weir's credentials"
	case 402:
		return "it wants to be paid before it does anything"
	case 403:
		return "weir's credentials have no right to this"
	case 407:
		return "a proxy in front of it does not accept weir's credentials"
	}
	return "it is to be called under another url"
}

// mending returns what an operator must do. It shows only the scheme and the host of a redirect's target, because a
// path or a query may carry a token.
func mending(api *API, r Response) string {
	what := "settle the account"
	switch {
	case r.Status >= 300 && r.Status < 400:
		what = "mend url"
		if to := leadsTo(r.Header, api.secrets()); to != "" {
			what = "write " + to + " in url"
		}
	case r.Status != 402 && len(api.Credentials) > 0:
		what = "mend headers." + strings.Join(api.Credentials, ", headers.")
	case r.Status != 402:
		what = "add its credentials under headers, by reference,"
	}
	return fmt.Sprintf("%s of api %s and apply, or run weir resume %s; a status that is about the single job goes into retry.reject",
		what, api.Name, api.Name)
}

// leadsTo returns the scheme and the host that a redirect names. It returns "" if the redirect names none that may be
// shown: the host may contain a secret that weir has sent.
func leadsTo(h http.Header, secrets []string) string {
	to, err := url.Parse(h.Get("Location"))
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" || len(to.Host) > longestHost ||
		strings.ContainsFunc(to.Host, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	host := strings.ToLower(to.Host)
	for _, secret := range secrets {
		if len(secret) >= leastSecret && strings.Contains(host, strings.ToLower(secret)) {
			return ""
		}
	}
	return to.Scheme + "://" + to.Host
}

// toldToWait returns how long a denial asks weir to wait. Only an explicit wait counts, and a window that is used up.
func toldToWait(h http.Header, now time.Time) schedule.Advice {
	if a, ok := retryAfter(h, now); ok {
		return a
	}
	a := usedUp(h, now)
	a.Spent = false
	return a
}

// rejects reports whether the configuration says that a status is about the job.
func (r *Retry) rejects(status int) bool { return slices.Contains(r.Reject, status) }
