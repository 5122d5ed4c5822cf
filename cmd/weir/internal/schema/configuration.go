package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// object is a JSON object.
type object = map[string]any

// Configuration returns the JSON Schema of weir.yaml, with a line break at its end, in draft 07, which YAML editors
// support best.
func Configuration() []byte {
	sections := map[string][]row{}
	for _, r := range rows("fields", "field") {
		sections[r.section] = append(sections[r.section], r)
	}
	root := mapping("", sections)
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = "weir.yaml"
	root["description"] = "The configuration of weir. weir config check says what a schema cannot."
	return encode(root)
}

func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		panic("schema: it cannot be written as JSON: " + err.Error())
	}
	return b.Bytes()
}

// mapping returns the schema of a section: a mapping with these fields and no others, or null.
func mapping(path string, sections map[string][]row) object {
	properties, required := object{}, []string{}
	for _, r := range sections[path] {
		name := r.names[0]
		properties[name] = field(join(path, name), r, sections)
		if r.cell("default") == "required" {
			required = append(required, name)
		}
	}
	s := object{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["type"], s["required"] = "object", required
	}
	for name, rule := range together[path] {
		s[name] = rule
	}
	return s
}

// together has the relations between fields of a section that JSON Schema can express.
var together = map[string]object{
	"apis.NAME.limits": {
		"oneOf": []object{required("rate"), required("quota"), required("in_flight"), required("budget")},
		"dependencies": object{
			"burst": []string{"rate"}, "counts": []string{"rate"}, "on_exhausted": []string{"budget"},
			"window": object{"anyOf": []object{required("quota"), required("budget")}},
			"tz":     object{"anyOf": []object{required("quota"), required("budget")}},
			"cost":   object{"anyOf": []object{required("rate"), required("quota")}},
		},
	},
}

func required(name string) object { return object{"required": []string{name}} }

func join(path, name string) string { return strings.Trim(path+"."+name, ".") }

// field returns the schema of a row's field, with its default and its description in the reference.
func field(path string, r row, sections map[string][]row) object {
	values := r.cell("values")
	s := shape(path, values, sections)
	text := plain(r.cell("meaning"))
	if unit := written(values); unit != "" {
		values += " (" + unit + ")"
	}
	s["description"] = fmt.Sprintf("%s\n\nValues: %s", text, plain(values))
	if quoted := inBackticks(r.cell("default")); len(quoted) == 1 && r.cell("default") == "`"+quoted[0]+"`" {
		s["default"] = defaultValue(quoted[0])
	} else if d := r.cell("default"); d != "" && d != "required" && d != "none" {
		s["description"] = fmt.Sprintf("%s\n\nDefault: %s", s["description"], plain(d))
	}
	return s
}

// written describes the form of a value that the reference explains once for all fields.
func written(values string) string {
	for _, r := range rows("configuration", "value") {
		kind := r.cells[0]
		if strings.HasPrefix(values, kind) && kind != "a name" {
			return plain(r.cells[1])
		}
	}
	return ""
}

// defaultValue returns a default as YAML reads it.
func defaultValue(text string) any {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		list := []any{}
		for item := range strings.SplitSeq(strings.TrimSuffix(inner, "]"), ",") {
			list = append(list, defaultValue(strings.Trim(strings.TrimSpace(item), `"`)))
		}
		return list
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if text == "true" || text == "false" {
		return text == "true"
	}
	return text
}

// Patterns of the parser's values: all that the parser accepts matches.
const (
	number   = `[0-9]+(\.[0-9]*)?|\.[0-9]+`
	unit     = `(ms|s|seconds?|m|min|minutes?|h|hours?|d|days?|w|weeks?)`
	duration = `((` + number + `) *` + unit + ` *)+`
)

var (
	text   = object{"type": []string{"string", "number", "boolean"}}
	name64 = `^[a-z0-9_-]{1,64}$`
)

func pattern(p string) object { return object{"type": "string", "pattern": "^(" + p + ")$"} }

// orNumber also takes what YAML reads as a number.
func orNumber(p string) object {
	return object{"type": []string{"string", "number"}, "pattern": "^(" + p + ")$"}
}

// orZero also takes the number 0, which needs no unit.
func orZero(p string) object { return object{"anyOf": []object{pattern(p), {"const": 0}}} }

func list(of object) object {
	return object{"type": []string{"array", "null"}, "items": of}
}

func atMost(values, of string, s object) object {
	if m := regexp.MustCompile(`at most (\d+)`).FindStringSubmatch(values); m != nil {
		s[of], _ = strconv.Atoi(m[1])
	}
	return s
}

var (
	wordsOnly  = regexp.MustCompile("^`[^`]+`((, | or )`[^`]+`)+$")
	wholeRange = regexp.MustCompile(`^(?:a whole number from )?(\d+) to (\d+)(,|$)`)
	percentage = regexp.MustCompile(`^\d+% to \d+%$`)
	statuses   = regexp.MustCompile(`^statuses from (\d+) to (\d+)$`)
)

// shape returns the schema of values with this description in the reference.
func shape(path, values string, sections map[string][]row) object {
	for _, free := range []string{path + ".NAME", path + ".PATTERN"} {
		if sections[free] != nil { // a mapping whose names the user chooses
			names := ".*"
			if path == "apis" {
				names = name64
			}
			s := object{"type": []string{"object", "null"}, "patternProperties": object{names: mapping(free, sections)}, "additionalProperties": false}
			return atMost(values, "maxProperties", s)
		}
	}
	inner := sections[path] != nil
	switch scalar := scalarShape(values); {
	case inner && scalar != nil:
		return object{"anyOf": []object{scalar, mapping(path, sections)}}
	case inner && strings.Contains(values, "a mapping"):
		return mapping(path, sections)
	case inner:
		return atMost(values, "maxItems", list(mapping(path, sections)))
	case scalar != nil:
		return scalar
	}
	panic(fmt.Sprintf("schema: of %s the topic configuration says %q, for which no shape is known", path, values))
}

// scalarShape returns the schema of a value, or of a list of values, of one form; nil if it does not know the words.
func scalarShape(values string) object {
	starts := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(values, w) })
	}
	switch words := inBackticks(values); {
	case wordsOnly.MatchString(values) && slices.Equal(words, []string{"true", "false"}):
		return object{"type": "boolean"}
	case wordsOnly.MatchString(values) && !strings.Contains(values, ":"):
		return object{"enum": words}
	case starts("a duration"):
		return orZero("0|" + duration)
	case starts("a size"):
		return orNumber(`(` + number + `) *([kKMGT]i?B|B)?`)
	case starts("a rate", "as a bucket's"):
		return pattern(`(` + number + `) */ *((` + unit + `)|` + duration + `)`)
	case starts("a quota", "money per period"):
		return pattern(`(` + number + `) */ *(month|(` + unit + `)|` + duration + `)`)
	case starts("money"):
		return orNumber(number)
	case percentage.MatchString(values):
		return orZero(`0|[0-9]+ *%`)
	case statuses.MatchString(values):
		m := statuses.FindStringSubmatch(values)
		return list(whole(m[1], m[2]))
	case wholeRange.MatchString(values) && !strings.Contains(values, "bytes"):
		m := wholeRange.FindStringSubmatch(values)
		if strings.Contains(values, "header:") {
			return object{"anyOf": []object{whole(m[1], m[2]), pattern(source)}}
		}
		return whole(m[1], m[2])
	case starts("`subject`, `header:NAME`"):
		return pattern("subject|" + source)
	case starts("`header:NAME`"):
		return pattern(source)
	case starts("1 to 16 HTTP methods"), strings.HasPrefix(values, "at most ") && (strings.Contains(values, " names") || strings.Contains(values, " patterns")):
		return atMost(values, "maxItems", list(object{"type": "string"}))
	case starts("a list of `"):
		return list(object{"enum": words})
	case values == "a list":
		return list(object{})
	case starts("a mapping, at most"):
		return atMost(values, "maxProperties", object{"type": []string{"object", "null"}, "additionalProperties": text})
	case starts("a name;"):
		return object{"type": []string{"string", "integer"}, "pattern": name64}
	case starts("scheme"):
		return object{"type": "string", "pattern": "^https?://"}
	case starts("a full path", "an address", "a header's name", "an IANA zone", "a path", "a JSON pointer", "one `${", "1 to 8 bytes"):
		return object{"type": "string"}
	}
	return nil
}

// source is the pattern for the place of a key or a cost in a message.
const source = `header:.+|json:.*`

// whole returns the schema of a whole number, which may be in quotes.
func whole(from, to string) object {
	least, _ := strconv.ParseInt(from, 10, 64)
	most, _ := strconv.ParseInt(to, 10, 64)
	return object{"type": []string{"integer", "string"}, "minimum": least, "maximum": most, "pattern": "^[0-9]+$"}
}
