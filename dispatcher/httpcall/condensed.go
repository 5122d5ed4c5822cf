package httpcall

import (
	"errors"
	"io"
)

// condensed reads a JSON text and leaves out what a search for numbers does not need: the bytes of a string beyond the
// first most, and all but the first byte of white space. An escape sequence counts as one byte. json.Decoder alone
// would keep each token in memory, however long it is.
type condensed struct {
	text   io.Reader
	most   int
	state  condensedState
	size   int  // of the present string, number or word
	digits int  // hexadecimal digits of an escape sequence that are still to come
	drops  bool // the rest of the string is left out
}

// condensedState says to what the last byte belonged.
type condensedState int8

const (
	inMarks  condensedState = iota // between values
	inSpace                        // white space
	inWord                         // a number, true, false or null
	inString                       // a string
	inEscape                       // a backslash in a string
)

// errLongToken ends the reading of a text in which a number or a word is longer than any that counts.
var errLongToken = errors.New("a number or a word in the answer is too long")

// Read implements io.Reader. It may return 0 bytes and no error.
func (c *condensed) Read(p []byte) (int, error) {
	n, err := c.text.Read(p)
	kept := p[:0]
	for _, b := range p[:n] {
		if c.keeps(b) {
			kept = append(kept, b)
		}
		if c.state == inWord && c.size > c.most {
			return len(kept), errLongToken
		}
	}
	return len(kept), err
}

// keeps advances by a byte, and reports whether the search needs it. It keeps or leaves out an escape sequence as a
// whole.
func (c *condensed) keeps(b byte) bool {
	former := c.state
	switch {
	case former == inEscape:
		if c.state = inString; b == 'u' {
			c.digits = 4
		}
		return !c.drops
	case former == inString && c.digits > 0:
		c.digits--
		return !c.drops
	case former == inString && b == '"':
		c.state, c.size, c.drops = inMarks, 0, false
		return true
	case former == inString:
		if b == '\\' {
			c.state = inEscape
		}
		c.size++
		c.drops = c.size > c.most
		return !c.drops
	case b == '"':
		c.state, c.size = inString, 0
	case b == ' ' || b == '\t' || b == '\r' || b == '\n':
		c.state, c.size = inSpace, 0
		return former != inSpace
	case b == '{' || b == '}' || b == '[' || b == ']' || b == ',' || b == ':':
		c.state, c.size = inMarks, 0
	default:
		c.state = inWord
		c.size++
	}
	return true
}
