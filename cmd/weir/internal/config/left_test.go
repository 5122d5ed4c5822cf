package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestLeft checks that only a rate and a quota may name the headers that say what is left of them.
func TestLeft(t *testing.T) {
	const api = "apis:\n  sms:\n    url: https://a\n    price: 0.1\n    bucket: {rate: 1/s, capacity: 1}\n    retry: {hold: api}\n    limits: [{name: all, %s}]\n"
	for _, c := range []struct{ limit, left, until, refused, warned string }{
		{"rate: 20/s, left: header:X-Left, left_until: header:X-Reset", "X-Left", "X-Reset", "", ""},
		{"quota: 20/day, left: \"header: X-Left\"", "X-Left", "", "", ""},
		{"quota: 20/3h, window: sliding, left: header:x-left", "x-left", "", "", ""},
		{"rate: 20/s, shadow: true, left: header:X-Left", "X-Left", "", "", "limits[0].left: has no effect while the limit only watches: remove shadow: true, or left"},
		{"rate: 20/s, left: json:/left", "", "", "limits[0].left: \"json:/left\" is no header of an answer: write header:NAME", ""},
		{"rate: 20/s, left: 5", "", "", "limits[0].left: \"5\" is no header of an answer", ""},
		{"rate: 20/s, left: X-Left", "", "", "limits[0].left: \"X-Left\" is no header of an answer", ""},
		{"rate: 20/s, left: \"header:X Left\"", "", "", "limits[0].left: \"header:X Left\" is no header of an answer", ""},
		{"rate: 20/s, left_until: header:X-Reset", "", "", "limits[0].left_until: says until when, and nothing says how much is left: write left: header:NAME too", ""},
		{"rate: 20/s, left: header:X-Left, left_until: 6m0s", "", "", "limits[0].left_until: \"6m0s\" is no header of an answer", ""},
		{"in_flight: 5, left: header:X-Left", "", "", "limits[0].left: means nothing to in_flight: an answer comes when its call has ended: remove it", ""},
		{"budget: 1.00/day, left: header:X-Left", "", "", "limits[0].left: means nothing to a budget: no vendor says how much money is left of it: remove it", ""},
	} {
		parsed, err := Parse(fmt.Appendf(nil, api, c.limit), Options{})
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v, want %q", c.limit, err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.limit, err)
			continue
		}
		l := parsed.APIs[0].Rules.Shared[0]
		if l.Left.Header != c.left || l.LeftUntil.Header != c.until {
			t.Errorf("%s: reads %q and %q", c.limit, l.Left.Header, l.LeftUntil.Header)
		}
		if warned := fmt.Sprint(parsed.Warnings); (c.warned == "") != (len(parsed.Warnings) == 0) || !strings.Contains(warned, c.warned) {
			t.Errorf("%s: warns %s", c.limit, warned)
		}
	}
}
