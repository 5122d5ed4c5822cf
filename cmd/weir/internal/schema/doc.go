// Package schema says in the languages of other tools what weir reads and writes: JSON Schema for weir.yaml, which editors complete by, and
// AsyncAPI for the subjects.
//
//	help: topic configuration ── tables ──▶ Configuration ──▶ JSON Schema, draft 07
//	help: topics jobs, results, dead-letters, events ── tables ──▶ Subjects ──▶ AsyncAPI 3.0
//
// The topics' tables are weir's tables of fields: tests hold each row to the parser and to the code, its name, its default, its range and
// its words (cmd/weir/test/docs/docs_configuration_test.go, cmd/weir/test/docs/docs_topics_test.go). So a field that is added there is in the schema, with what the
// reference says of it.
//
// What must hold:
//
//   - A file that weir takes passes the schema. What the schema refuses, weir refuses; weir refuses more, since a schema knows no other
//     fields, no secrets and no arithmetic.
//   - A row whose values are written in words that this package does not know makes Configuration panic: a test calls it.
//
// It must not know the parser, commands, or what any of it means.
package schema
