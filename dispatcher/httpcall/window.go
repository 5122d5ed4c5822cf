package httpcall

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// window is one limit of the api, as far as an answer's headers report it.
type window struct {
	name      string // its header's name in lower case, without the word for the quantity that it reports
	limit     int64
	remaining int64
	reset     time.Duration // time from the answer until the window opens again
	limited   bool          // limit is known
	counted   bool          // remaining is known
	timed     bool          // reset is known
	exact     bool          // reset was given as a duration, which needs no clock

	concurrent bool // it limits calls that run at the same time: the remaining number says nothing about later calls
}

// Bounds of what is read from one answer.
const (
	mostWindows  = 64
	longestField = 4 << 10
	longestName  = 256 // of a window: the log and status show it
)

// windows collects the limits that one answer reports.
type windows struct {
	now func() time.Time // by the api's clock
	all []window
}

// readWindows reads an answer's limits in all known spellings: the IETF draft's fields RateLimit and RateLimit-Policy,
// old and new; their predecessors and vendors' variants, for example X-RateLimit-Remaining, x-ratelimit-reset-requests
// and anthropic-ratelimit-tokens-reset; and pairs of used and allowed, for example Shopify's.
func readWindows(h http.Header, now time.Time) []window {
	ws := windows{now: func() time.Time { return serverNow(h, now) }}
	for name, values := range h {
		if !strings.Contains(name, "imit") {
			continue // most answers have no window; net/http writes a capital only at the beginning of a word
		}
		value := strings.Join(values, ", ")
		if len(value) > longestField {
			continue
		}
		name = strings.ToLower(name)
		family, what, found := cutFamily(name)
		switch {
		case found && what == "":
			ws.readField(family, value)
		case found && what == "policy":
			ws.readPolicy(family, value)
		case isPair(name):
			ws.readPair(name, value)
		case found:
			ws.readPart(family, what, value)
		case strings.HasSuffix(name, "limit-remaining"):
			ws.readPart(strings.TrimSuffix(name, "-remaining"), "remaining", value)
		}
	}
	return slices.DeleteFunc(ws.all, func(w window) bool { return w.concurrent })
}

// cutFamily splits a header's name after ratelimit or rate-limit: x-rate-limit-reset-requests into x-ratelimit and
// reset-requests.
func cutFamily(name string) (family, what string, found bool) {
	for _, word := range []string{"ratelimit", "rate-limit"} {
		if i := strings.Index(name, word); i >= 0 && (i == 0 || name[i-1] == '-') {
			end := i + len(word)
			if rest := name[end:]; rest == "" || rest[0] == '-' {
				return name[:i] + "ratelimit", strings.TrimPrefix(rest, "-"), true
			}
		}
	}
	return "", "", false
}

// of returns the window with this name, and adds it if it is new.
func (ws *windows) of(name string) *window {
	for i := range ws.all {
		if ws.all[i].name == name {
			return &ws.all[i]
		}
	}
	if len(ws.all) == mostWindows || len(name) > longestName {
		return &window{} // not kept
	}
	ws.all = append(ws.all, window{name: name})
	return &ws.all[len(ws.all)-1]
}

// readPart reads a header that reports one quantity of a window. what contains the word for the quantity, and perhaps
// the window's name on either side of it.
func (ws *windows) readPart(family, what, value string) {
	words := strings.Split(what, "-")
	at := slices.IndexFunc(words, func(w string) bool { return w == "remaining" || w == "limit" || w == "reset" || w == "retry" })
	if at < 0 {
		return
	}
	next := at + 1
	after := len(words) > next && words[next] == "after"
	if after {
		next++
	}
	value = firstOf(value)
	if last := len(words) - 1; last >= next && (words[last] == "ms" || words[last] == "seconds") {
		if n, ok := readNumber(value); ok && words[last] == "ms" && n < fromMillis {
			value += "ms"
		}
		words = words[:last]
	}
	name := strings.Join(append(append([]string{family}, words[:at]...), words[next:]...), "-")
	switch words[at] {
	case "remaining":
		ws.of(name).setRemaining(value)
	case "limit":
		ws.of(name).setLimit(value)
	case "reset", "retry":
		if after {
			ws.of(name).setWait(value, ws.now())
			return
		}
		ws.of(name).setReset(value, ws.now())
	}
}

// setReset notes when the window opens again, given as a time or a wait. If an answer also gives a value that is
// certainly a wait, that value counts.
func (w *window) setReset(value string, now time.Time) {
	if wait, ok := readWait(value, now); ok && !w.exact {
		w.reset, w.timed = wait, true
	}
}

// setWait notes how long it takes until the window opens again.
func (w *window) setWait(value string, now time.Time) {
	if wait, ok := readWait(value, now); ok {
		w.reset, w.timed, w.exact = wait, true, true
	}
}

func (w *window) setRemaining(value string) {
	if n, ok := readWhole(firstOf(value)); ok {
		w.remaining, w.counted = n, true
	}
}

func (w *window) setLimit(value string) {
	if n, ok := readWhole(firstOf(value)); ok {
		w.limit, w.limited = n, true
	}
}

// firstOf returns the first of several values, without its parameters. Older drafts list all windows behind the window
// that binds.
func firstOf(value string) string {
	if end := strings.IndexAny(value, ",;"); end >= 0 {
		if strings.Contains(value, " GMT") {
			return value // a date
		}
		value = value[:end]
	}
	return strings.TrimSpace(value)
}

// readWhole reads a count and drops its decimals, because a part of a call is no call. A negative value is no count: it
// stands for "unknown" and "unlimited".
func readWhole(text string) (int64, bool) {
	n, ok := readNumber(text)
	if !ok {
		return 0, false
	}
	return int64(min(n, 1e15)), true
}

// isPair reports whether a header reports used and allowed units: 32/40, or api-usage=18/5000.
func isPair(name string) bool {
	return strings.HasSuffix(name, "-call-limit") || name == "sforce-limit-info"
}

func (ws *windows) readPair(name, value string) {
	for i, pair := range splitField(value, ',') {
		if _, after, found := strings.Cut(pair, "="); found {
			pair = after
		}
		used, allowed, _ := strings.Cut(pair, "/")
		allowed, _, _ = strings.Cut(allowed, "(")
		u, err := strconv.ParseInt(strings.TrimSpace(used), 10, 64)
		a, ok := readWhole(strings.TrimSpace(allowed))
		if err != nil || !ok || u < 0 {
			continue
		}
		if i > 0 {
			name += "+" // each pair is a window of its own
		}
		w := ws.of(name)
		w.limit, w.limited, w.remaining, w.counted = a, true, max(0, a-u), true
	}
}
