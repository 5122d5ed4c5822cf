package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Pointed returns the value at a JSON pointer (RFC 6901) in body: a number as json.Number, an object or an array as a
// json.RawMessage, which is a part of body. If a member occurs twice, the last one counts, as in most JSON readers.
// Pointed decodes only scalars: a large array would take many times its bytes.
func Pointed(body []byte, pointer string) (any, error) {
	if !json.Valid(body) {
		return nil, errors.New("the body is not JSON, or more than one value")
	}
	at := trimJSON(body)
	for _, name := range PointerNames(pointer) {
		value, found := child(at, name)
		if !found {
			return nil, fmt.Errorf("the body has nothing at %s", pointer)
		}
		at = value
	}
	if at[0] == '{' || at[0] == '[' {
		return json.RawMessage(at), nil
	}
	dec := json.NewDecoder(bytes.NewReader(at))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return nil, fmt.Errorf("the body cannot be read at %s", pointer)
	}
	return value, nil
}

// PointerNames returns the names of the members and the indexes of the items on the way to a JSON pointer's value.
func PointerNames(pointer string) (names []string) {
	if pointer == "" {
		return nil // the whole text
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		names = append(names, unescape.Replace(part))
	}
	return names
}

// child returns a member of an object or an item of an array. container must be valid JSON.
func child(container []byte, name string) (value []byte, found bool) {
	switch container[0] {
	case '{':
		for rest := next(container[1:]); len(rest) > 0; {
			key, after := cutValue(rest)
			after = trimJSON(after)[1:] // the colon
			member, after := cutValue(trimJSON(after))
			if names(key, name) {
				value, found = member, true
			}
			rest = next(after)
		}
	case '[':
		want, err := strconv.Atoi(name)
		if err != nil || want < 0 || strconv.Itoa(want) != name {
			return nil, false
		}
		rest := next(container[1:])
		for n := 0; len(rest) > 0; n++ {
			item, after := cutValue(rest)
			if n == want {
				return item, true
			}
			rest = next(after)
		}
	}
	return value, found
}

// next returns the rest of a container from its next member or item on. It is empty at the container's end.
func next(b []byte) []byte {
	b = trimJSON(b)
	switch b[0] {
	case '}', ']':
		return nil
	case ',':
		return trimJSON(b[1:])
	}
	return b
}

// cutValue splits b after its first value. b must be valid JSON up to the end of its container.
func cutValue(b []byte) (value, after []byte) {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			if depth > 0 || i+1 < len(b) && !endsScalar(b[i+1]) {
				continue
			}
		}
		if depth == 0 {
			return b[:i+1], b[i+1:]
		}
	}
	return b, nil
}

// endsScalar reports whether c may follow a number or a literal.
func endsScalar(c byte) bool { return strings.IndexByte(",]} \t\r\n", c) >= 0 }

func trimJSON(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }

// names reports whether a member's name, in its JSON spelling, equals name.
func names(written []byte, name string) bool {
	if bytes.IndexByte(written, '\\') < 0 && utf8.Valid(written) {
		return string(written[1:len(written)-1]) == name
	}
	var s string
	return json.Unmarshal(written, &s) == nil && s == name
}
