package config

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	// maxFile bounds a configuration file, in bytes. The file must fit in one message of a NATS server with default
	// settings.
	maxFile = 512 << 10
	// maxVisits bounds the values that weir reads from one file. Aliases may repeat a part of the file many times.
	maxVisits = 500_000
	// mostProblems bounds the problems that weir reports for one file. Reading stops after that many.
	mostProblems = 1000
)

// document collects the problems that are found while a file is read.
type document struct {
	problems   []Problem
	warnings   []Problem
	notes      []Problem
	references []reference
	visits     int
	describes  bool                    // read also returns the values as texts
	facts      map[*yaml.Node]*sourced // nodes that come from a vendor's profile
	site       string                  // Options.Site
	inForce    map[string]int64        // Options.Shares
}

// value is one place in a document: its node (aliases are followed), the line that a message names, and the path from
// the root. A field that the file does not have has a nil node.
type value struct {
	doc  *document
	node *yaml.Node
	line int
	path string
}

// open reads the text of one YAML document. After a syntax error it reports only that one.
func (d *document) open(data []byte) (value, bool) {
	root := value{doc: d, line: 1}
	if len(data) > maxFile {
		root.fail("the file is too large", "write at most "+FormatSize(maxFile))
		return root, false
	}
	if at := strangeByte(data); at >= 0 {
		value{doc: d, line: 1 + bytes.Count(data[:at], []byte("\n"))}.fail("a byte here is no UTF-8", "save the file as UTF-8")
		return root, false
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var node, second yaml.Node
	if err := decoder.Decode(&node); errors.Is(err, io.EOF) || err == nil && len(node.Content) == 0 {
		root.fail("the file is empty", "write apis: {} to configure nothing")
		return root, false
	} else if err != nil {
		d.problems = append(d.problems, syntaxProblem(err))
		return root, false
	}
	if err := decoder.Decode(&second); err == nil {
		value{doc: d, line: max(second.Line, 1)}.fail("a second document begins", "write one document and no ---")
		return root, false
	} else if !errors.Is(err, io.EOF) {
		d.problems = append(d.problems, syntaxProblem(err))
		return root, false
	}
	return root.at(node.Content[0], 1, ""), true
}

// strangeByte returns the position of the first byte that is not valid UTF-8, or -1. It accepts UTF-16 with a byte
// order mark, which the YAML parser recognizes.
func strangeByte(data []byte) int {
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return -1
	}
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return -1
}

// syntaxProblem makes a Problem of a YAML parser's error. It cuts the line number out of the error's text.
func syntaxProblem(err error) Problem {
	p := Problem{Line: 1, Message: strings.TrimPrefix(err.Error(), "yaml: ")}
	if m := regexp.MustCompile(`^line (\d+): `).FindStringSubmatch(p.Message); m != nil {
		if line, err := strconv.Atoi(m[1]); err == nil && line > 0 {
			p.Line = line
		}
		p.Message = p.Message[len(m[0]):]
	}
	switch {
	case strings.Contains(p.Message, "cannot start any token"):
		p.Fix = "indent with spaces, not tabs, and quote a text that begins with @, ` or %"
	case strings.Contains(p.Message, "alphabetic or numeric character"):
		p.Fix = `quote a pattern that begins with *, as in "*-test"`
	case strings.Contains(p.Message, "unexpected end of stream"):
		p.Fix = "close the quote that is opened before"
	case strings.Contains(p.Message, "mapping values are not allowed"):
		p.Fix = "check the indentation, and quote a text that contains a colon"
	}
	return p
}

// at returns the value of a node below v. line is the line of its key.
func (v value) at(node *yaml.Node, line int, path string) value {
	for range 8 { // a bound, although YAML has no alias of an alias
		if node.Kind != yaml.AliasNode || node.Alias == nil {
			break
		}
		node = node.Alias
	}
	if node.Kind == yaml.ScalarNode && !isNull(node) && node.Line > 0 {
		line = node.Line
	}
	return value{doc: v.doc, node: node, line: line, path: path}
}

// visit counts the work of reading v and its children. It reports whether the file's bound allows that work.
func (v value) visit() bool {
	if v.doc.visits >= maxVisits {
		return false
	}
	v.doc.visits += 1 + len(v.node.Content)
	if v.doc.visits >= maxVisits {
		v.fail("the file has too many values, aliases followed", "write fewer")
		return false
	}
	return true
}

// problem returns a problem at v. If v comes from the profile of the api's vendor, the message says so, the fix says
// how to leave the value out, and the line is the one that names the vendor.
func (v value) problem(message, fix string) Problem {
	if f := v.doc.facts[v.node]; f != nil {
		message += " (from the profile of vendor " + f.vendor + ")"
		if fix != "" {
			fix += ", or "
		}
		fix += "write vendor: {name: " + f.vendor + ", without: [" + f.Field + "]}"
	}
	return Problem{Line: v.line, Path: v.path, Message: message, Fix: fix}
}

// fail reports a problem at v.
func (v value) fail(message, fix string) {
	switch p := v.problem(message, fix); {
	case len(v.doc.problems) < mostProblems:
		v.doc.problems = append(v.doc.problems, p)
	case len(v.doc.problems) == mostProblems:
		v.doc.problems = append(v.doc.problems, Problem{Line: v.line, Message: "there are more problems", Fix: "mend these first"})
		v.doc.visits = maxVisits
	}
}

// failWith reports a parser's error at v.
func (v value) failWith(err error) {
	p := problemOf(v.path, err)
	v.fail(p.Message, p.Fix)
}

// warn reports at v a setting that is allowed but probably a mistake.
func (v value) warn(message, fix string) {
	v.doc.warnings = append(v.doc.warnings, v.problem(message, fix))
}

// note records at v a fact that a reader of the file should know, although the setting is not a mistake.
func (v value) note(message, fix string) {
	v.doc.notes = append(v.doc.notes, v.problem(message, fix))
}

// scalar returns the text of a single value as the file has it, without quotes.
func (v value) scalar() (string, bool) {
	if !v.visit() {
		return "", false
	}
	switch {
	case isNull(v.node):
		v.fail("has no value", "write one or remove the field")
	case v.node.Kind != yaml.ScalarNode:
		v.fail("is "+kindName(v.node), "write a single value")
	case v.node.ShortTag() == "!!binary" || !strings.HasPrefix(v.node.ShortTag(), "!!"):
		v.fail("has the tag "+quote(v.node.ShortTag()), "remove the tag")
	default:
		return v.node.Value, true
	}
	return "", false
}

// list returns the items of a sequence, at most most. A null is an empty list.
func (v value) list(most int) []value {
	if v.node == nil || !v.visit() || isNull(v.node) {
		return nil
	}
	if v.node.Kind != yaml.SequenceNode || v.node.ShortTag() != "!!seq" {
		v.fail("is "+kindName(v.node), "write a list: [ … ]")
		return nil
	}
	if len(v.node.Content) > most {
		v.fail("has "+strconv.Itoa(len(v.node.Content))+" items", "write at most "+strconv.Itoa(most))
		return nil
	}
	items := make([]value, len(v.node.Content))
	for i, node := range v.node.Content {
		items[i] = v.at(node, max(node.Line, 1), v.path+"["+strconv.Itoa(i)+"]")
	}
	return items
}

// entry is one key of a mapping, with its value.
type entry struct {
	name string
	key  int // line of the name
	value
}

// entries returns the entries of a mapping, at most most. A null is an empty mapping. A key that stands twice is a
// problem; entries returns its first value.
func (v value) entries(most int) ([]entry, bool) {
	if v.node == nil {
		return nil, true
	}
	if !v.visit() {
		return nil, false
	}
	if isNull(v.node) {
		return nil, true
	}
	if v.node.Kind != yaml.MappingNode || v.node.ShortTag() != "!!map" {
		v.fail("is "+kindName(v.node), "write fields: name: value")
		return nil, false
	}
	if n := len(v.node.Content) / 2; n > most {
		message, fix := "has "+strconv.Itoa(n)+" entries", "write at most "+strconv.Itoa(most)
		if facts := v.inProfile(); facts > 0 {
			message += ", " + strconv.Itoa(facts) + " of them from the profile of the api's vendor"
			fix += ", or leave some of those out: vendor: {name: …, without: […]}"
		}
		v.fail(message, fix)
		return nil, false
	}
	first := make(map[string]int, len(v.node.Content)/2)
	entries := make([]entry, 0, len(v.node.Content)/2)
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key := v.at(v.node.Content[i], max(v.node.Content[i].Line, 1), v.path)
		name := key.node.Value
		switch {
		case key.node.Kind != yaml.ScalarNode:
			key.fail("has a key that is "+kindName(key.node), "write a name")
			continue
		case key.node.ShortTag() == "!!merge":
			key.fail("merges with <<", "write the fields out: a limit should stand where it is looked for")
			continue
		}
		place := v.at(v.node.Content[i+1], key.line, joinPath(v.path, name))
		if line, twice := first[name]; twice {
			value{v.doc, key.node, key.line, place.path}.fail(
				"stands here a second time, first on line "+strconv.Itoa(line), "remove one of them")
			continue
		}
		first[name] = key.line
		entries = append(entries, entry{name: name, key: key.line, value: place})
	}
	return entries, true
}

// inProfile returns how many values of a mapping come from a vendor's profile and not from the file.
func (v value) inProfile() (n int) {
	for i := 1; i < len(v.node.Content); i += 2 {
		if v.doc.facts[v.node.Content[i]] != nil {
			n++
		}
	}
	return n
}

// isList reports whether v is a list.
func (v value) isList() bool { return v.node != nil && v.node.Kind == yaml.SequenceNode }

// isScalar reports whether v is a single value other than null.
func (v value) isScalar() bool {
	return v.node != nil && v.node.Kind == yaml.ScalarNode && !isNull(v.node)
}

func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null"
}

func kindName(node *yaml.Node) string {
	kind, plain := "a single value", ""
	switch node.Kind {
	case yaml.MappingNode:
		kind, plain = "a mapping", "!!map"
	case yaml.SequenceNode:
		kind, plain = "a list", "!!seq"
	}
	if tag := node.ShortTag(); plain != "" && tag != plain {
		return kind + " with the tag " + quote(tag)
	}
	return kind
}

// joinPath appends a name to a path. It quotes a name with unusual characters.
func joinPath(path, name string) string {
	plain := name != "" && len(name) <= longestName && !strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-*", r)
	})
	switch {
	case !plain:
		return path + "[" + quoteAtMost(name, longestName) + "]"
	case path == "":
		return name
	default:
		return path + "." + name
	}
}
