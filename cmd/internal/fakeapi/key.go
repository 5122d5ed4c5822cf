package fakeapi

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"
)

// KeyFrom says where the key of a request is: in a header, or in a segment of the path. Exactly one field must be set.
type KeyFrom struct {
	// Header is the name of a request header.
	Header string
	// Segment is the number of a path segment, from 1. A negative one counts from the end: -1 is the last segment.
	Segment int
}

func (k KeyFrom) validate() error {
	if (k.Header == "") == (k.Segment == 0) {
		return errors.New("set either Key.Header or Key.Segment")
	}
	return nil
}

// of returns the request's key, or "" if it has none.
func (k KeyFrom) of(path string, header http.Header) string {
	if k.Segment == 0 {
		return legible(header.Get(k.Header))
	}
	return legible(segment(path, k.Segment))
}

// legible returns text unchanged if it is UTF-8. Else it writes odd bytes as %XX, because JSON could not distinguish
// them.
func legible(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return url.PathEscape(text)
}

// segment returns the nth segment of a path, unescaped, or "" if the path is shorter. A negative n counts from the end.
func segment(path string, n int) string {
	path = strings.Trim(path, "/")
	for path != "" {
		var part string
		if n > 0 {
			part, path, _ = strings.Cut(path, "/")
			n--
		} else {
			i := strings.LastIndexByte(path, '/')
			part, path = path[i+1:], path[:max(i, 0)]
			n++
		}
		if n != 0 {
			continue
		}
		if plain, err := url.PathUnescape(part); err == nil {
			return plain
		}
		return part
	}
	return ""
}
