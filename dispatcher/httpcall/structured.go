package httpcall

import (
	"strings"
)

// splitField cuts a structured field at sep, outside of strings and byte sequences.
func splitField(text string, sep byte) []string {
	var parts []string
	var quote byte
	from := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote == '"' && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"', c == ':' && i > 0 && text[i-1] == '=':
			quote = c
		case c == sep:
			parts, from = append(parts, text[from:i]), i+1
		}
	}
	return append(parts, text[from:])
}

// readField reads the draft's field RateLimit. It is a list of windows. Each has its remaining units (r, later
// a) and the seconds to its end (t, later w):
//
//	"burst";r=0;t=30, "daily";r=950
//
// Before the eighth draft it was one window written as a dictionary: limit=10, remaining=0, reset=5.
func (ws *windows) readField(family, value string) {
	for _, item := range splitField(value, ',') {
		params := splitField(item, ';')
		switch key, _, _ := strings.Cut(strings.TrimSpace(params[0]), "="); strings.TrimSpace(key) {
		case "limit", "remaining", "reset":
			ws.readMember(ws.of(family), params)
		default:
			if title := strings.Trim(key, `" `); title != "" {
				ws.readMember(ws.of(windowName(family, title)), params[1:])
			}
		}
	}
}

// windowName names a window of a structured field. The name has only characters that are safe in any text.
func windowName(field, title string) string {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '_'
	}, strings.ToLower(title))
	return field + "-" + plain[:min(len(plain), 64)]
}

// readMember reads the parameters of one member of RateLimit.
func (ws *windows) readMember(w *window, params []string) {
	for _, param := range params {
		key, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		value = strings.Trim(strings.TrimSpace(value), `"`)
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "limit", "q":
			w.setLimit(value)
		case "remaining", "r", "a":
			w.setRemaining(value)
		case "reset", "t", "w":
			w.setWait(value, ws.now())
		}
	}
}

// readPolicy reads the draft's field RateLimit-Policy, which says how much a window allows. A window of concurrent
// calls has no end to wait for, because each call that ends frees a part of it.
func (ws *windows) readPolicy(family, value string) {
	for _, item := range splitField(value, ',') {
		params := splitField(item, ';')
		title := strings.Trim(strings.TrimSpace(params[0]), `"`)
		if title == "" || title[0] >= '0' && title[0] <= '9' {
			continue // before the eighth draft a policy had no name but its quota
		}
		w := ws.of(windowName(family, title))
		for _, param := range params[1:] {
			key, value, _ := strings.Cut(strings.TrimSpace(param), "=")
			value = strings.Trim(strings.TrimSpace(value), `"`)
			switch strings.TrimSpace(key) {
			case "q":
				w.setLimit(value)
			case "qu":
				w.concurrent = value == "concurrent-requests"
			}
		}
	}
}
