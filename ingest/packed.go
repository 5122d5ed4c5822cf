package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Packed is what an api whose calls may have several jobs requires of each: that it can stand beside others.
type Packed struct {
	Match string // JSON pointer to what its answer is found by; "" for none
}

// errNotJSON says that a job cannot stand beside others in one call.
var errNotJSON = errors.New("the body is not one JSON value: several jobs go in one call of this api")

// Item returns a body as it stands beside others, without spaces, and what its answer is found by.
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

// Matched returns the string or number at a pointer into a JSON text, in a form in which no string equals a number; "" if
// there is none.
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

// checkPacked refuses a job that cannot stand beside others in one call.
func (j *Job) checkPacked(rule *Rule) *Refusal {
	if rule.Packed == nil {
		return nil
	}
	if _, _, err := rule.Packed.Item(j.Body); err != nil {
		return refuse(Invalid, "%v", err)
	}
	return nil
}
