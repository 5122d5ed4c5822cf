// Package field is the registry of the fields of weir.yaml and of the variables of the environment.
//
//	document.go          the walk through YAML: values with their lines, mappings and lists
//	field.go, kind.go    what a field is; how a mapping is read, and described as texts
//	type.go              types of single values
//	reference.go         texts with references to secrets, and whether these resolve
//	table.go             the fields as documents describe them
//
// # To add a field
//
// Write one entry in the section method of its mapping, and run make fields:
//
//	{
//		Name: "linger", Is: field.One(&a.Linger, field.Duration(0, time.Hour)), Or: "5s",
//		Means: "how long weir keeps a connection open",
//	},
//
// Everything comes from that entry: the parser with its problems and their fixes, the difference of two files, the JSON
// Schema, and the table in the topic fields (make fields writes both). The value is in a.Linger. In the same way:
//
//   - One(at, TYPE) is a single value, Many(at, most, TYPE) a list of them. type.go has the types: Duration, Size,
//     Whole, Percent, Word, Yes, Rate, Money, Free. The method But gives a type other limits. Secret is a text with
//     references to secrets.
//   - Mapping(section) is a mapping that always has a value, Optional(at, section) one that may be absent: nil.
//     Items(at, most, section) is a list of mappings; Named(at, most, below, section, name) has names that the user
//     chooses; Shorthand(section) is a mapping that may be written as its first field alone. They nest.
//   - The entry may have more members. Needs makes the field required; its text is the fix if the field is missing. Or
//     is the default, as a file writes it. Absent sets a default that depends on fields above, and Otherwise describes
//     such a default.
//   - A section's Check reports what its fields cause together: f.Place(name).Fail or Warn, f.Ignored for fields
//     without effect. It runs if the file has the mapping, even if fields of it were refused: see f.Clean and f.Fine.
//
// A variable of the environment is an entry of the same form in environment.Settings. envconfig decodes it into its
// place in the settings, Redacted lists it, and make fields writes the table in the topic environment. A type whose
// values are secrets, secret.Value or secret.Template, never shows one.
//
// Fields are read in the order of the section, so a field stands below those that its default or its check needs.
//
// Section.Read walks YAML nodes and does not decode into structs with tags: the decoder stops at the first wrong type
// of a field, knows no paths, and accepts 010 as 8 and 1_0 as 10. The registry binds a field to a pointer, and not to a
// tag, so that the compiler checks types, and a range or a default can be any expression.
package field
