// Package schema describes weir's input and output for other tools: weir.yaml by a JSON Schema, for completion in
// editors, and the subjects by AsyncAPI.
//
//	config: the registry of fields ── File ──▶ Configuration ──▶ JSON Schema, draft 07
//	help: topics jobs, results, dead-letters, events ── tables ──▶ Subjects ──▶ AsyncAPI 3.0
//
// Package config has every field of weir.yaml once, with the JSON Schema of its values and its description in the
// reference. The tables of the topics list what weir publishes. Tests compare each row of these tables with the code
// (cmd/weir/test/docs/docs_topics_test.go).
//
// Invariant:
//
//   - A file that weir accepts passes the schema. weir also refuses files that pass the schema, because a schema cannot
//     express secrets, arithmetic and relations between most fields.
//
// The package does not know the commands, nor the meaning of any field.
package schema
