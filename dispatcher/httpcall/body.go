package httpcall

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"weir/ingest"
)

// Bounds of reading an answer to find out which units its call used. They do not depend on how much is kept as the
// result.
const (
	maxTold    = 16 << 20
	maxToken   = 1 << 10 // characters of a string, number or word beyond the longest pointer
	mostNested = 10_000
	maxDrain   = 64 << 10 // bytes that are read and dropped; if more of an answer is left, its connection is closed
)

// reading is an answer's body while it is being read. It keeps the body's beginning.
type reading struct {
	body io.Reader
	most int64
	kept []byte
	more bool  // the body is longer than what is kept
	all  bool  // the whole body counts, not only what is kept
	err  error // why the body broke off before all that counts was read
}

func (r *reading) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	room := min(int64(n), r.most-int64(len(r.kept)))
	r.kept = append(r.kept, p[:room]...)
	r.more = r.more || room < int64(n)
	switch {
	case err == nil || err == io.EOF:
	case r.all || int64(len(r.kept)) < r.most:
		r.err = fmt.Errorf("the answer broke off: %w", ForLetters(err))
	default:
		r.more = true // the answer had not ended
	}
	return n, err
}

// readBody reads an answer's body; of is the body's form. It keeps at most most bytes, and returns the numbers that the
// JSON pointers name. It reads a stream to its end, because the numbers may be only there.
func readBody(body io.ReadCloser, of form, most int64, pointers []string) (r *reading, units map[string]int64) {
	defer func() { _ = body.Close() }() // an error does not invalidate what was read
	r = &reading{body: body, most: most, all: of != document}
	switch {
	case r.all:
		return r, unitsOfEvents(r, of, pointers)
	case len(pointers) > 0:
		units = findUnits(io.LimitReader(r, maxTold), pointers)
	}
	for _, rest := range []int64{most - int64(len(r.kept)), maxDrain} {
		if r.err == nil {
			_, _ = io.CopyN(io.Discard, r, rest) // r.err holds the error
		}
	}
	return r, units
}

// level is an object or array that contains the present place of a search.
type level struct {
	array bool
	index int    // of the present element
	name  string // of the present member
	named bool   // the member's value comes next
}

// findUnits returns the whole numbers of a JSON text that the pointers name. It keeps neither the text nor a long
// string of it in memory. If the text breaks off, it returns the numbers before the break.
func findUnits(text io.Reader, pointers []string) map[string]int64 {
	longest := 0
	for _, pointer := range pointers {
		longest = max(longest, len(pointer))
	}
	// A name that condensed cuts is still longer than every name in a pointer, and matches none.
	dec := json.NewDecoder(&condensed{text: text, most: maxToken + longest})
	dec.UseNumber()
	paths := make([][]string, min(len(pointers), ingest.MostPointers))
	for i := range paths {
		paths[i] = ingest.PointerNames(pointers[i])
	}
	found := map[string]int64{}
	var in []level
	for {
		token, err := dec.Token()
		if err != nil {
			return found
		}
		if end, ok := token.(json.Delim); ok && (end == '}' || end == ']') {
			in = in[:len(in)-1]
		} else if inside(in, token) {
			continue
		} else if ok {
			in = append(in, level{array: end == '[', index: -1})
		} else if number, ok := token.(json.Number); ok {
			for i, path := range paths {
				// A number beyond the range of int64 becomes the largest or the smallest one.
				units, err := strconv.ParseInt(number.String(), 10, 64)
				if (err == nil || errors.Is(err, strconv.ErrRange)) && units >= 0 && at(in, path) {
					found[pointers[i]] = units
				}
			}
		}
		if len(in) == 0 || len(in) > mostNested {
			return found
		}
	}
}

// inside advances the innermost level to the value that begins with a token, and reports whether the token is only the
// value's name.
func inside(in []level, token json.Token) bool {
	if len(in) == 0 {
		return false
	}
	l := &in[len(in)-1]
	if l.array {
		l.index++
		return false
	}
	if l.named = !l.named; l.named {
		l.name, _ = token.(string)
	}
	return l.named
}

func at(in []level, path []string) bool {
	return slices.EqualFunc(in, path, func(l level, part string) bool {
		if l.array {
			return strconv.Itoa(l.index) == part
		}
		return l.name == part
	})
}

// settlePointers returns the JSON pointers to those numbers in an answer's body that settle or count a call.
func (a *API) settlePointers() (pointers []string) {
	settled := a.PriceTerms()
	for i := range a.Rules.Shared {
		settled = append(settled[:len(settled):len(settled)], a.Rules.Shared[i].Cost...)
	}
	add := func(at ingest.Source) {
		for place := range at.Places() {
			if place.Pointer != "" && !slices.Contains(pointers, place.Pointer) {
				pointers = append(pointers, place.Pointer)
			}
		}
	}
	for i := range settled {
		add(settled[i].Settle)
	}
	for i := range a.Usage {
		add(a.Usage[i].From)
	}
	return pointers
}
