package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/field"
)

// object is a JSON object.
type object = map[string]any

// Configuration returns the JSON Schema of weir.yaml, with a line break at the end. It uses draft 07, because YAML
// editors support that draft best.
func Configuration() []byte {
	root := mapping(config.File())
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

// mapping returns the schema of a section. The schema allows a mapping with only the section's fields and, if it
// requires none of them, null.
func mapping(of field.Table) object {
	properties, required := object{}, []string{}
	for _, f := range of.Fields {
		if properties[f.Name] = property(f); f.Required && !f.Lent {
			required = append(required, f.Name)
		}
	}
	s := object{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["type"], s["required"] = "object", required
	}
	maps.Copy(s, of.Relations)
	return s
}

// property returns the schema of a field, with its default and with its description from the reference.
func property(f field.Row) object {
	var inner object
	if f.Inner != nil {
		inner = mapping(*f.Inner)
	}
	s, values := maps.Clone(f.Shape(inner)), f.Values
	if unit := written(values); unit != "" {
		values += " (" + unit + ")"
	}
	s["description"] = fmt.Sprintf("%s\n\nValues: %s", plain(f.Meaning), plain(values))
	if quoted := inBackticks(f.Default); len(quoted) == 1 && f.Default == "`"+quoted[0]+"`" {
		s["default"] = defaultValue(quoted[0])
	} else if f.Default != "" && !f.Required && f.Default != "none" {
		s["description"] = fmt.Sprintf("%s\n\nDefault: %s", s["description"], plain(f.Default))
	}
	return s
}

// written returns the description of the form of a value, for example of a duration. The reference explains such a form
// once for all fields. written returns "" if it does not explain the form.
func written(values string) string {
	for _, r := range rows("configuration", "value") {
		kind := r.cells[0]
		if strings.HasPrefix(values, kind) && kind != "a name" {
			return plain(r.cells[1])
		}
	}
	return ""
}

// defaultValue returns the value that YAML reads from the text of a default.
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
