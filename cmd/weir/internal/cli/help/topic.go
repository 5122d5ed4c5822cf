package help

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed *.md
var files embed.FS

// Topic is one page of the reference.
type Topic struct {
	Name  string // the name for `weir help`: lower case, words joined by -
	Short string // what the topic is about, in one line
	text  string
}

// Text returns the topic's Markdown.
func (t Topic) Text() string { return t.text }

// Topics returns all topics, sorted by name.
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

// read makes a topic from its text. It panics if the first line does not have the form that doc.go requires, because
// that is a mistake in the source.
func read(name, text string) Topic {
	title, _, _ := strings.Cut(text, "\n")
	short, ok := strings.CutPrefix(title, "# "+name+": ")
	if !ok {
		panic(fmt.Sprintf("help: %s.md begins with %q and not with its name", name, title))
	}
	return Topic{Name: name, Short: short, text: text}
}

// Lookup returns the topic of that name.
func Lookup(name string) (t Topic, ok bool) {
	for _, t := range Topics() {
		if t.Name == name {
			return t, true
		}
	}
	return Topic{}, false
}
