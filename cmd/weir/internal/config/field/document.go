package field

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"

	"go.yaml.in/yaml/v3"
)

const (
	// MaxFile bounds a configuration file, in bytes. The file must fit in one message of a NATS server with default
	// settings.
	MaxFile = 512 << 10
	// maxVisits bounds the values that weir reads from one file. Aliases may repeat a part of the file many times.
	maxVisits = 500_000
	// longestInPath bounds a name of the file in a path, in bytes.
	longestInPath = 128
	// MostProblems bounds the problems that weir reports for one file. Reading stops after that many.
	MostProblems = 1000
)

// Document collects the problems that are found while a file is read.
type Document struct {
	Problems   []problem.Problem
	Warnings   []problem.Problem
	Notes      []problem.Problem
	References []Reference
	visits     int
	Describes  bool                        // Section.Read also returns the values as texts
	attributed map[*yaml.Node]*Attribution // nodes that come from a vendor's profile
}

// Value is one place in a document: its node (aliases are followed), the line that a message names, and the path from
// the root. A field that the file does not have has a nil node.
type Value struct {
	Doc  *Document
	Node *yaml.Node
	Line int
	Path string
}

// Open reads the text of one YAML document. After a syntax error it reports only that one.
func (d *Document) Open(data []byte) (Value, bool) {
	root := Value{Doc: d, Line: 1}
	if len(data) > MaxFile {
		root.Fail("the file is too large", "write at most "+grammar.FormatSize(MaxFile))
		return root, false
	}
	if at := strangeByte(data); at >= 0 {
		Value{
			Doc:  d,
			Line: 1 + bytes.Count(data[:at], []byte("\n")),
		}.Fail("a byte here is no UTF-8", "save the file as UTF-8")
		return root, false
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var node, second yaml.Node
	if err := decoder.Decode(&node); errors.Is(err, io.EOF) || err == nil && len(node.Content) == 0 {
		root.Fail("the file is empty", "write apis: {} to configure nothing")
		return root, false
	} else if err != nil {
		d.Problems = append(d.Problems, syntaxProblem(err))
		return root, false
	}
	if err := decoder.Decode(&second); err == nil {
		Value{Doc: d, Line: max(second.Line, 1)}.Fail("a second document begins", "write one document and no ---")
		return root, false
	} else if !errors.Is(err, io.EOF) {
		d.Problems = append(d.Problems, syntaxProblem(err))
		return root, false
	}
	return root.At(node.Content[0], 1, ""), true
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
func syntaxProblem(err error) problem.Problem {
	p := problem.Problem{Line: 1, Message: strings.TrimPrefix(err.Error(), "yaml: ")}
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

// Full reports whether the document's bound allows no further value.
func (d *Document) Full() bool { return d.visits >= maxVisits }

// Attribute notes which vendor documents the value of a node.
func (d *Document) Attribute(node *yaml.Node, to *Attribution) {
	if d.attributed == nil {
		d.attributed = map[*yaml.Node]*Attribution{}
	}
	d.attributed[node] = to
}

// At returns the value of a node below v. line is the line of its key.
func (v Value) At(node *yaml.Node, line int, path string) Value {
	for range 8 { // a bound, although YAML has no alias of an alias
		if node.Kind != yaml.AliasNode || node.Alias == nil {
			break
		}
		node = node.Alias
	}
	if node.Kind == yaml.ScalarNode && !IsNull(node) && node.Line > 0 {
		line = node.Line
	}
	return Value{Doc: v.Doc, Node: node, Line: line, Path: path}
}

// visit counts the work of reading v and its children. It reports whether the file's bound allows that work.
func (v Value) visit() bool {
	if v.Doc.Full() {
		return false
	}
	v.Doc.visits += 1 + len(v.Node.Content)
	if v.Doc.Full() {
		v.Fail("the file has too many values, aliases followed", "write fewer")
		return false
	}
	return true
}

// problem returns a problem at v. If v comes from the profile of the api's vendor, the message says so, the fix says
// how to leave the value out, and the line is the one that names the vendor.
func (v Value) problem(message, fix string) problem.Problem {
	if f := v.Doc.attributed[v.Node]; f != nil {
		message += " (from the profile of vendor " + f.Vendor + ")"
		if fix != "" {
			fix += ", or "
		}
		fix += "write vendor: {name: " + f.Vendor + ", without: [" + f.Field + "]}"
	}
	return problem.Problem{Line: v.Line, Path: v.Path, Message: message, Fix: fix}
}

// Fail reports a problem at v.
func (v Value) Fail(message, fix string) {
	switch p := v.problem(message, fix); {
	case len(v.Doc.Problems) < MostProblems:
		v.Doc.Problems = append(v.Doc.Problems, p)
	case len(v.Doc.Problems) == MostProblems:
		v.Doc.Problems = append(v.Doc.Problems, problem.Problem{
			Line:    v.Line,
			Message: "there are more problems",
			Fix:     "mend these first",
		})
		v.Doc.visits = maxVisits
	}
}

// FailWith reports a parser's error at v.
func (v Value) FailWith(err error) {
	p := problem.Of(v.Path, err)
	v.Fail(p.Message, p.Fix)
}

// Warn reports at v a setting that is allowed but probably a mistake.
func (v Value) Warn(message, fix string) {
	v.Doc.Warnings = append(v.Doc.Warnings, v.problem(message, fix))
}

// Note records at v a fact that a reader of the file should know, although the setting is not a mistake.
func (v Value) Note(message, fix string) {
	v.Doc.Notes = append(v.Doc.Notes, v.problem(message, fix))
}

// Scalar returns the text of a single value as the file has it, without quotes.
func (v Value) Scalar() (string, bool) {
	if !v.visit() {
		return "", false
	}
	switch {
	case IsNull(v.Node):
		v.Fail("has no value", "write one or remove the field")
	case v.Node.Kind != yaml.ScalarNode:
		v.Fail("is "+kindName(v.Node), "write a single value")
	case v.Node.ShortTag() == "!!binary" || !strings.HasPrefix(v.Node.ShortTag(), "!!"):
		v.Fail("has the tag "+problem.Quote(v.Node.ShortTag()), "remove the tag")
	default:
		return v.Node.Value, true
	}
	return "", false
}

// List returns the items of a sequence, at most most. A null is an empty list.
func (v Value) List(most int) []Value {
	if v.Node == nil || !v.visit() || IsNull(v.Node) {
		return nil
	}
	if v.Node.Kind != yaml.SequenceNode || v.Node.ShortTag() != "!!seq" {
		v.Fail("is "+kindName(v.Node), "write a list: [ … ]")
		return nil
	}
	if len(v.Node.Content) > most {
		v.Fail("has "+strconv.Itoa(len(v.Node.Content))+" items", "write at most "+strconv.Itoa(most))
		return nil
	}
	items := make([]Value, len(v.Node.Content))
	for i, node := range v.Node.Content {
		items[i] = v.At(node, max(node.Line, 1), v.Path+"["+strconv.Itoa(i)+"]")
	}
	return items
}

// Entry is one key of a mapping, with its value.
type Entry struct {
	Name string
	key  int // line of the name
	Value
}

// Entries returns the entries of a mapping, at most most. A null is an empty mapping. A key that stands twice is a
// problem, and Entries returns its first value.
func (v Value) Entries(most int) ([]Entry, bool) {
	if v.Node == nil {
		return nil, true
	}
	if !v.visit() {
		return nil, false
	}
	if IsNull(v.Node) {
		return nil, true
	}
	if v.Node.Kind != yaml.MappingNode || v.Node.ShortTag() != "!!map" {
		v.Fail("is "+kindName(v.Node), "write fields: name: value")
		return nil, false
	}
	if n := len(v.Node.Content) / 2; n > most {
		message, fix := "has "+strconv.Itoa(n)+" entries", "write at most "+strconv.Itoa(most)
		if facts := v.inProfile(); facts > 0 {
			message += ", " + strconv.Itoa(facts) + " of them from the profile of the api's vendor"
			fix += ", or leave some of those out: vendor: {name: …, without: […]}"
		}
		v.Fail(message, fix)
		return nil, false
	}
	first := make(map[string]int, len(v.Node.Content)/2)
	entries := make([]Entry, 0, len(v.Node.Content)/2)
	for i := 0; i+1 < len(v.Node.Content); i += 2 {
		key := v.At(v.Node.Content[i], max(v.Node.Content[i].Line, 1), v.Path)
		name := key.Node.Value
		switch {
		case key.Node.Kind != yaml.ScalarNode:
			key.Fail("has a key that is "+kindName(key.Node), "write a name")
			continue
		case key.Node.ShortTag() == "!!merge":
			key.Fail("merges with <<", "write the fields out: a limit should stand where it is looked for")
			continue
		}
		place := v.At(v.Node.Content[i+1], key.Line, JoinPath(v.Path, name))
		if line, twice := first[name]; twice {
			Value{v.Doc, key.Node, key.Line, place.Path}.Fail(
				"stands here a second time, first on line "+strconv.Itoa(line), "remove one of them")
			continue
		}
		first[name] = key.Line
		entries = append(entries, Entry{Name: name, key: key.Line, Value: place})
	}
	return entries, true
}

// inProfile returns how many values of a mapping come from a vendor's profile and not from the file.
func (v Value) inProfile() (n int) {
	for i := 1; i < len(v.Node.Content); i += 2 {
		if v.Doc.attributed[v.Node.Content[i]] != nil {
			n++
		}
	}
	return n
}

// IsList reports whether v is a list.
func (v Value) IsList() bool { return v.Node != nil && v.Node.Kind == yaml.SequenceNode }

// IsScalar reports whether v is a single value other than null.
func (v Value) IsScalar() bool {
	return v.Node != nil && v.Node.Kind == yaml.ScalarNode && !IsNull(v.Node)
}

// IsNull reports whether a node is the null of YAML.
func IsNull(node *yaml.Node) bool {
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
		return kind + " with the tag " + problem.Quote(tag)
	}
	return kind
}

// JoinPath appends a name to a path. It quotes a name with unusual characters.
func JoinPath(path, name string) string {
	plain := name != "" && len(name) <= longestInPath && !strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-*", r)
	})
	switch {
	case !plain:
		return path + "[" + problem.QuoteAtMost(name, longestInPath) + "]"
	case path == "":
		return name
	default:
		return path + "." + name
	}
}

// Attribution says which vendor documents the value of a field, and where.
type Attribution struct {
	Vendor string
	Field  string // the field's path below the api
	Says   string // what the vendor says
	Page   string // where the vendor says it
	Date   string // date of the page
}

// Origin is where a value in force comes from: a vendor's profile, a move of shares, or a line of the file. The zero
// value stands for weir's own default.
type Origin struct {
	Line   int
	Vendor *Attribution
	Moved  bool // weir shares put the value in force
}

// Origin returns where the value comes from.
func (v Value) Origin() Origin {
	switch {
	case v.Node == nil:
		return Origin{}
	case v.Doc.attributed[v.Node] != nil:
		return Origin{Vendor: v.Doc.attributed[v.Node]}
	}
	return Origin{Line: v.Line}
}

// Entry returns the value of one key of a mapping, and whether the mapping has that key. It adds no problem to the
// document, whatever the mapping holds.
func (v Value) Entry(name string) (Value, bool) {
	for i := 0; i+1 < len(v.Node.Content); i += 2 {
		if key := v.Node.Content[i]; key.Kind == yaml.ScalarNode && key.Value == name {
			return v.At(v.Node.Content[i+1], max(key.Line, 1), JoinPath(v.Path, name)), true
		}
	}
	return Value{}, false
}
