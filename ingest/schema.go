package ingest

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Schema returns the JSON Schema of a value's type in one line. The metadata of endpoints carries it, and NATS tools
// show it. It knows structs, slices, maps with string keys, strings, numbers, booleans and times. It describes a type
// with its own MarshalJSON as any value.
func Schema(of any) string {
	data, err := json.Marshal(schemaOf(reflect.TypeOf(of)))
	if err != nil {
		panic("ingest: a schema that JSON cannot carry: " + err.Error()) // it consists of maps, slices and strings
	}
	return string(data)
}

func schemaOf(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case t.Implements(reflect.TypeFor[json.Marshaler]()), reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()):
		return map[string]any{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Struct:
		properties, required := map[string]any{}, map[string]bool{}
		addFields(t, properties, required)
		s := map[string]any{"type": "object", "properties": properties}
		if len(required) > 0 {
			s["required"] = slices.Sorted(maps.Keys(required))
		}
		return s
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return map[string]any{"type": "string", "contentEncoding": "base64"}
		}
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer"}
	}
	return map[string]any{}
}

// addFields adds the fields of a struct as encoding/json writes them. The fields of an embedded struct are listed
// beside its own.
func addFields(t reflect.Type, properties map[string]any, required map[string]bool) {
	for f := range t.Fields() {
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-", !f.IsExported() && !f.Anonymous:
			continue
		case name == "" && f.Anonymous && f.Type.Kind() == reflect.Struct:
			addFields(f.Type, properties, required)
			continue
		case name == "":
			name = f.Name
		}
		properties[name] = schemaOf(f.Type)
		required[name] = !strings.Contains(rest, "omit")
		if !required[name] {
			delete(required, name)
		}
	}
}
