// Package schema describes for other tools what weir reads and writes: by a JSON Schema for weir.yaml, for completion
// in editors, and by AsyncAPI for the subjects.
//
//	config: the registry of fields ── File ──▶ Configuration ──▶ JSON Schema, draft 07
//	help: topics jobs, results, dead-letters, events ── tables ──▶ Subjects ──▶ AsyncAPI 3.0
//
// Package config has every field of weir.yaml once, with the JSON Schema of its values and its description in the
// reference. The topics' tables are weir's tables of what it publishes: tests compare each row with the code
// (cmd/weir/test/docs/docs_topics_test.go).
//
// What must hold:
//
//   - A file that weir accepts passes the schema. weir also refuses files that pass it, because a schema knows no
//     secrets, no arithmetic and no relations between most fields.
//
// The package does not know the commands, or the meaning of any field.
package schema
