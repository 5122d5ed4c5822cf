package ingest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"weir/ingest"
)

// wholePointed does the same as Pointed, by decoding the whole body.
func wholePointed(body []byte, pointer string) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("more than one value")
	}
	if pointer == "" {
		return value, nil
	}
	for _, part := range strings.Split(pointer[1:], "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch v := value.(type) {
		case map[string]any:
			next, ok := v[part]
			if !ok {
				return nil, errors.New("nothing there")
			}
			value = next
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(v) || strconv.Itoa(i) != part {
				return nil, errors.New("nothing there")
			}
			value = v[i]
		default:
			return nil, errors.New("nothing there")
		}
	}
	return value, nil
}

var names = rapid.SampledFrom([]string{"a", "b", "n", "a/b", "~", "", "é", `"`, "\\", "0", "1", "-1", "01", "a\tb"})

const mostDepth = 3

// someJSON draws a JSON value, with spaces, escapes and repeated members.
func someJSON(t *rapid.T, depth int) string {
	space := rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r "})
	kinds := 3
	if depth > 0 {
		kinds = 5
	}
	kind := rapid.IntRange(0, kinds-1)
	if depth == mostDepth {
		kind = rapid.IntRange(3, 4)
	}
	text := func(s string) string {
		if rapid.IntRange(0, 3).Draw(t, "escaped") > 0 {
			plain, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			return string(plain)
		}
		var b strings.Builder
		for _, r := range s {
			fmt.Fprintf(&b, "\\u%04x", r)
		}
		return `"` + b.String() + `"`
	}
	inner, open, closed := []string{}, "[", "]"
	switch kind.Draw(t, "kind") {
	case 0:
		return space.Draw(t, "s") + rapid.SampledFrom([]string{"0", "12", "-3.5e2", "true", "null", "1e400"}).Draw(t, "scalar") + space.Draw(t, "s")
	case 1, 2:
		return space.Draw(t, "s") + text(names.Draw(t, "text")) + space.Draw(t, "s")
	case 3:
		open, closed = "{", "}"
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			inner = append(inner, space.Draw(t, "s")+text(names.Draw(t, "name"))+space.Draw(t, "s")+":"+someJSON(t, depth-1))
		}
	case 4:
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			inner = append(inner, someJSON(t, depth-1))
		}
	}
	return space.Draw(t, "s") + open + space.Draw(t, "s") + strings.Join(inner, ",") + closed + space.Draw(t, "s")
}

// TestPointedIsTheWholeTree checks that Pointed, which decodes only one value, agrees with wholePointed, for valid and
// invalid JSON.
func TestPointedIsTheWholeTree(t *testing.T) {
	if got, err := ingest.Pointed([]byte(`{"a~":[1,{"b":2}]}`), "/a~0/1/b"); err != nil || got != json.Number("2") {
		t.Errorf("%v, %v", got, err)
	}
	rapid.Check(t, func(t *rapid.T) {
		body := someJSON(t, mostDepth)
		if cut := rapid.IntRange(0, 9).Draw(t, "damage"); cut == 0 && body != "" {
			at := rapid.IntRange(0, len(body)-1).Draw(t, "at")
			body = body[:at] + rapid.SampledFrom([]string{"", "}", "]", `"`, ",", "{", "1"}).Draw(t, "with") + body[at+1:]
		}
		pointer := ""
		for range rapid.IntRange(0, 3).Draw(t, "parts") {
			pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(names.Draw(t, "part"))
		}
		want, wantErr := wholePointed([]byte(body), pointer)
		got, err := ingest.Pointed([]byte(body), pointer)
		if raw, ok := got.(json.RawMessage); ok {
			if got, err = wholePointed(raw, ""); err != nil {
				t.Fatalf("%s at %q: %s: %v", body, pointer, raw, err)
			}
		}
		if (err != nil) != (wantErr != nil) || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s at %q: %v, %v, want %v, %v", body, pointer, got, err, want, wantErr)
		}
	})
}

// TestPointedDecodesNoContainer checks that a large array in the place of a key or a cost is not decoded into memory.
func TestPointedDecodesNoContainer(t *testing.T) {
	const most = 64 // allocations for the job and its refusal
	body := []byte(`{"k":[0` + strings.Repeat(",0", 10_000) + `]}`)
	rule := plainRule
	rule.MaxBody = 1 << 20
	key, cost := rule, rule
	key.Key.Pointer = "/k"
	cost.Costs = []ingest.CostBound{{Limit: "tokens", From: ingest.FromPointer("/k"), Most: 50}}
	for _, c := range []struct {
		rule *ingest.Rule
		key  string
	}{{&key, ""}, {&cost, "k"}} {
		taken := testing.AllocsPerRun(10, func() {
			if _, refusal := ingest.Parse(ingest.Message{Key: c.key, Body: body}, c.rule, someNow); refusal == nil || refusal.Code != ingest.Invalid {
				t.Errorf("an array is taken: %v", refusal)
			}
		})
		if taken > most {
			t.Errorf("%.0f allocations, want at most %d", taken, most)
		}
	}
}
