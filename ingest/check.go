package ingest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/ingest/client"

	"github.com/nats-io/nats.go"
	"golang.org/x/net/http/httpguts"
)

const maxPathBytes = 4096 // for a path, and for a query

func checkID(id string) error {
	if id == "" || len(id) > MaxIDBytes {
		return fmt.Errorf("an id has 1 to %d bytes, this one has %d", MaxIDBytes, len(id))
	}
	for i := 0; i < len(id); i++ {
		if id[i] <= ' ' || id[i] > '~' {
			return errors.New("an id is made of visible ASCII characters: it is sent to the api as a header")
		}
	}
	return nil
}

// checkMsgID allows an id with or without the suffix of a redrive. The other headers show whether the message is a
// redrive.
func checkMsgID(id string) error {
	if len(id) > MaxIDBytes && len(id) <= maxRedriveIDBytes {
		return checkID(id[len(id)-MaxIDBytes:])
	}
	return checkID(id)
}

// CheckJobID returns an error if no job can have this id. It allows the suffix of a redrive.
func CheckJobID(id string) error { return checkMsgID(id) }

func checkMethod(method string, allowed []string) error {
	if slices.Contains(allowed, method) {
		return nil
	}
	return fmt.Errorf("it names none of this api's methods %v", allowed)
}

// checkPath refuses paths that could leave the api's url: everything that a client, a proxy or a server could read as
// another host or as a step up.
func checkPath(path string) error {
	switch {
	case path == "":
		return nil
	case len(path) > maxPathBytes:
		return fmt.Errorf("a path has at most %d bytes", maxPathBytes)
	case path[0] != '/':
		return errors.New("a path begins with / and names no host")
	case strings.HasPrefix(path, "//"):
		return errors.New("a path that begins with // would name a host")
	case strings.ContainsAny(path, "?#\\"):
		return errors.New("a path holds no ? # or \\: the query goes into Weir-Query")
	}
	if err := checkVisible(path); err != nil {
		return err
	}
	// A server may decode more than once. Three rounds catch every nested escape that occurs in practice.
	for decoded, round := path, 0; round < 3; round++ {
		next, err := url.PathUnescape(decoded)
		if err != nil {
			if round == 0 {
				return fmt.Errorf("a %% must begin an escape such as %%20")
			}
			break
		}
		for _, segment := range strings.FieldsFunc(next, func(r rune) bool { return r == '/' || r == '\\' }) {
			if segment == ".." || segment == "." || strings.HasPrefix(segment, "..;") {
				return errors.New("a path must not hold . or .. segments")
			}
		}
		if strings.Contains(next, "\xc0\xae") || strings.Contains(next, "\xe0\x80\xae") {
			return errors.New("a path must not hold a dot in more bytes than it has")
		}
		if strings.ContainsAny(next, "\r\n\x00") {
			return errors.New("a path must not hold CR, LF or NUL, escaped or not")
		}
		if next == decoded {
			break
		}
		decoded = next
	}
	return nil
}

func checkQuery(query string) error {
	switch {
	case len(query) > maxPathBytes:
		return fmt.Errorf("a query has at most %d bytes", maxPathBytes)
	case strings.ContainsAny(query, "#"):
		return errors.New("a query holds no #")
	}
	return checkVisible(query)
}

func checkVisible(s string) error {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] > '~' {
			return errors.New("characters other than visible ASCII must be escaped as %XX")
		}
	}
	return nil
}

func checkHeaderValue(v string) error {
	if !httpguts.ValidHeaderFieldValue(v) {
		return errors.New("the value holds characters that HTTP cannot carry")
	}
	return nil
}

// ParseDeadline parses the value of Weir-Deadline: an RFC 3339 time, or a duration from now.
func ParseDeadline(value string, now time.Time) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		d, err := time.ParseDuration(value)
		if err != nil {
			return time.Time{}, errors.New("it is neither an RFC 3339 time nor a duration like 30s")
		}
		at = now.Add(d)
	}
	return at, nil
}

// DeadlineOf returns the deadline in a job's headers, or zero if they name none that can be read. A duration counts
// from storedAt.
func DeadlineOf(h nats.Header, storedAt time.Time) time.Time {
	value := firstValue(h, HeaderDeadline)
	if value == "" {
		return time.Time{}
	}
	at, _ := ParseDeadline(value, storedAt) // zero with an error: the dispatcher refuses the job when it loads it
	return at
}

// firstValue returns the first value of a header, or "" if there is none. It ignores the case of the name.
func firstValue(h nats.Header, header string) string {
	for name, values := range h {
		if len(name) == len(header) && len(values) > 0 && strings.EqualFold(name, header) {
			return values[0]
		}
	}
	return ""
}

func parseCost(value string) (int64, error) {
	cost, err := strconv.ParseInt(value, 10, 64)
	if err != nil || cost < 1 || cost > MostUnits {
		return 0, fmt.Errorf("it is not a whole number from 1 to %d", int64(MostUnits))
	}
	return cost, nil
}

// checkThrottled refuses values of Weir-On-Throttled that weir does not implement.
func checkThrottled(value string) error {
	if value != client.Retry {
		return fmt.Errorf("it says %q or nothing", client.Retry)
	}
	return nil
}

// checkReplyTo refuses reply subjects to which a producer could not publish itself. weir may publish to more subjects
// than a producer, and must not lend it that right.
func checkReplyTo(subject string) error {
	if subject == "" || len(subject) > 512 || strings.ContainsAny(subject, " \t\r\n*>") ||
		slices.Contains(strings.Split(subject, "."), "") {
		return errors.New("it is not a subject to publish to, of at most 512 bytes")
	}
	if notTheirs(subject) {
		return errors.New("it belongs to NATS or to weir: name a subject of your own")
	}
	return nil
}

// notTheirs reports whether weir must not publish to a subject for a producer.
func notTheirs(subject string) bool {
	return strings.HasPrefix(subject, "$") || strings.HasPrefix(subject, "weir.")
}

// pointedString returns the string or number at a JSON pointer, as text.
func pointedString(body []byte, pointer string) (string, error) {
	value, err := Pointed(body, pointer)
	if err != nil {
		return "", err
	}
	switch v := value.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	}
	return "", fmt.Errorf("what %s points to is neither a string nor a number", pointer)
}
