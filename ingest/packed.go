package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Packed says what an api requires of its jobs if one call may carry several of them.
type Packed struct {
	Match string // JSON pointer to the value by which a job's answer is found; "" for none
}

// errNotJSON is why a job cannot share a call with other jobs.
var errNotJSON = errors.New("the body is not one JSON value: several jobs go in one call of this api")

// Item returns a body without spaces, as it stands in a call of several jobs, and the value by which its answer is
// found.
func (p *Packed) Item(body []byte) (item json.RawMessage, match string, err error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, body); err != nil {
		return nil, "", errNotJSON
	}
	item = compact.Bytes()
	if p.Match == "" {
		return item, "", nil
	}
	if match = Matched(item, p.Match); match == "" {
		return nil, "", fmt.Errorf("the body has no string or number at %s, by which its answer is found", p.Match)
	}
	return item, match, nil
}

// Matched returns the string or number at a pointer into a JSON text, with its type in front, so that "1" does not
// equal 1. It returns "" if there is neither.
func Matched(text []byte, pointer string) string {
	v, err := Pointed(text, pointer)
	if err != nil {
		return ""
	}
	switch v := v.(type) {
	case string:
		return "string " + v
	case json.Number:
		return "number " + v.String()
	}
	return ""
}

// checkPacked refuses a job that cannot share a call with other jobs.
func (j *Job) checkPacked(rule *Rule) *Refusal {
	if rule.Packed == nil {
		return nil
	}
	if _, _, err := rule.Packed.Item(j.Body); err != nil {
		return refuse(Invalid, "%v", err)
	}
	return nil
}
