package help

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed *.md
var files embed.FS

// Topic is one page of reference.
type Topic struct {
	Name  string // what it is asked for by: lower case, words joined by -
	Short string // what it is about, in one line
	text  string
}

// Text is the topic's Markdown.
func (t Topic) Text() string { return t.text }

// Topics are all there are, by name.
func Topics() []Topic {
	names, err := fs.Glob(files, "*.md")
	if err != nil {
		panic("help: the pattern of topics is wrong: " + err.Error())
	}
	topics := make([]Topic, 0, len(names))
	for _, file := range names {
		text, err := files.ReadFile(file)
		if err != nil {
			panic("help: a file that is built in cannot be read: " + err.Error())
		}
		topics = append(topics, read(strings.TrimSuffix(file, ".md"), string(text)))
	}
	return topics
}

// read takes a topic from its text. A first line that is not as doc.go has it is a mistake of whoever built the binary.
func read(name, text string) Topic {
	title, _, _ := strings.Cut(text, "\n")
	short, ok := strings.CutPrefix(title, "# "+name+": ")
	if !ok {
		panic(fmt.Sprintf("help: %s.md begins with %q and not with its name", name, title))
	}
	return Topic{Name: name, Short: short, text: text}
}

// Lookup finds a topic by its name.
func Lookup(name string) (t Topic, ok bool) {
	for _, t := range Topics() {
		if t.Name == name {
			return t, true
		}
	}
	return Topic{}, false
}
