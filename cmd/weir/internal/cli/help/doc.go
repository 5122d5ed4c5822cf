// Package help holds weir's reference documentation. It consists of topics. Each topic is a Markdown file in this
// directory, and is built into the binary.
//
//	limits.md ── embed ──▶ Topic ── Text ──▶ the Markdown as it is      (to a pipe, to a reader of the repository)
//	                             └─ Render ─▶ headings bold, wrapped     (to a terminal)
//
// The package must not know commands, the configuration, or anything else of weir: it only holds text. Tests beside the
// commands check that every name in the text exists in the code, and that the text leaves out no name
// (cmd/weir/test/docs/docs_topics_test.go).
//
// Invariants:
//
//   - A topic is a file NAME.md. It begins with "# NAME: " and a line that says what the topic is about. There is no
//     other list of the topics.
//   - A topic uses only the Markdown that Render supports: headings, paragraphs, lists of one level, tables, blocks of
//     code (indented or fenced), `code`, **bold** and [links](limits.md). A test checks that.
//   - Render writes no line that is wider than requested, except blocks of code, which are never broken, and single
//     words.
package help
