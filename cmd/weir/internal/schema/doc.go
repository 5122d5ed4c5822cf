// Package schema describes for other tools what weir reads and writes: by a JSON Schema for weir.yaml, for completion
// in editors, and by AsyncAPI for the subjects.
//
//	help: topic configuration ── tables ──▶ Configuration ──▶ JSON Schema, draft 07
//	help: topics jobs, results, dead-letters, events ── tables ──▶ Subjects ──▶ AsyncAPI 3.0
//
// The topics' tables are weir's tables of fields. Tests compare the name, default, range and values of each row with
// the parser and the code (cmd/weir/test/docs/docs_configuration_test.go, cmd/weir/test/docs/docs_topics_test.go). So a
// field that is added there is in the schema, with its description in the reference.
//
// What must hold:
//
//   - A file that weir accepts passes the schema. weir also refuses files that pass it, because a schema knows no
//     secrets, no arithmetic and no relations between most fields.
//   - If the values of a row are in words that this package does not know, Configuration panics: a test calls it.
//
// The package does not know the parser, the commands, or the meaning of any field.
package schema
