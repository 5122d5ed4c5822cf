// Package help holds weir's reference documentation: topics, each a Markdown file of this directory that is built into the binary.
//
//	limits.md ── embed ──▶ Topic ── Text ──▶ the Markdown as it is      (to a pipe, to a reader of the repository)
//	                             └─ Render ─▶ headings bold, wrapped     (to a terminal)
//
// It must not know commands, the configuration, or anything else of weir: it holds text. That every name in the text is one that the
// code has, and that no name of the code is left out, the tests beside the commands hold (cmd/weir/test/docs/docs_topics_test.go).
//
// What holds:
//
//   - A topic is a file NAME.md. It begins with "# NAME: " and what the topic is about, in one line; nothing else lists the topics.
//   - A topic is written in the Markdown that Render knows, and a test holds it to that: headings, paragraphs, lists of one level, tables,
//     blocks of code (indented or fenced), `code`, **bold** and [links](limits.md).
//   - A line of Render is at most as wide as it was asked to be, but for blocks of code, which are never broken, and single words.
package help
