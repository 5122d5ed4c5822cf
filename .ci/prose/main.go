// Command prose lists sentences in weir's comments that are hard to read: `make prose` runs it. Many of them are right as
// they are; read what it lists when you have changed a package. With -judge, as `make vet` runs it, it lists only comments
// that are wrong, and fails if there are any.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"log"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Kinds of findings.
const (
	startsElsewhere = "does not start with its identifier"
	unknownName     = "names what does not exist"
	personal        = "speaks of a process as of a person"
	longPassive     = "is passive and has more than 25 words"
	placeForTime    = "says where for if or when"
)

var (
	person   = regexp.MustCompile(`(?i)\b(who|whoever|whom|nobody|somebody|anybody|someone|everybody)\b`)
	passive  = regexp.MustCompile(`(?i)\b(is|are|was|were|be|been|being)\s+(\w+ly\s+)?\w+(ed|en|wn|pt|nt|ld|id)\b`)
	where    = regexp.MustCompile(`^Where (a|an|the|there|it|no)\b`)
	name     = regexp.MustCompile(`\b([a-z]+[a-z0-9]*[A-Z]\w*|[A-Z]\w*[a-z]\w*[A-Z]\w*|[a-z]+_?[a-z]*\.go)\b`)
	sentence = regexp.MustCompile(`[.:;!?]\s+`)
	quoted   = regexp.MustCompile("`[^`]*`|\"[^\"]*\"|https?://\\S+|\\S*[/_]\\S*")
)

// judged are the kinds of which every finding is wrong.
var judged = []string{startsElsewhere, unknownName, placeForTime}

// foreign are names in comments that are not in the code: of products, and of other programs' code.
var foreign = []string{
	"OpenAPI", "OpenTelemetry", "JavaScript", "gRPC", "PubAcks", "WatchdogSec", "StreamManager", "KeyValueManager",
	"TextMarshaler", "TextUnmarshaler", "GetCertificate", "GetTextMapPropagator", "HeaderCarrier", "GetTickCount64",
	"ExportTraceServiceResponse",
}

type finding struct{ at, kind, text string }

func main() {
	log.SetFlags(0)
	kind := flag.String("kind", "", "list only findings whose kind contains `text`")
	judge := flag.Bool("judge", false, "list only what is wrong, and fail if there is any")
	flag.Parse()
	roots := flag.Args()
	if len(roots) == 0 {
		roots = []string{"."}
	}
	files := token.NewFileSet()
	parsed, known := map[string]*ast.File{}, map[string]bool{}
	for _, word := range foreign {
		known[word] = true
	}
	each(".", func(path string) {
		source, err := os.ReadFile(path)
		if err != nil {
			log.Fatal(err)
		}
		file, err := parser.ParseFile(files, path, source, parser.ParseComments)
		if err != nil {
			log.Fatal(err)
		}
		parsed[absolute(path)] = file
		known[filepath.Base(path)] = true
		learn(files, path, source, known)
	})
	var all []finding
	for _, root := range roots {
		each(root, func(path string) {
			file := parsed[absolute(path)]
			if file == nil {
				log.Fatalf("%s is not below this directory", path)
			}
			all = append(all, read(files, file, known)...)
		})
	}
	if *judge {
		all = slices.DeleteFunc(all, func(f finding) bool { return !slices.Contains(judged, f.kind) })
	}
	counts := map[string]int{}
	for _, f := range all {
		if strings.Contains(f.kind, *kind) {
			counts[f.kind]++
			fmt.Printf("%s: %s: %s\n", f.at, f.kind, f.text)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		fmt.Printf("%5d %s\n", counts[kind], kind)
	}
	if *judge && len(all) > 0 {
		os.Exit(1)
	}
}

func absolute(path string) string {
	full, err := filepath.Abs(path)
	if err != nil {
		log.Fatal(err)
	}
	return full
}

// each calls do for every Go file below root that is weir's own.
func each(root string, do func(path string)) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata"):
			return filepath.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, ".go"):
			do(path)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

// learn adds the identifiers of a file to those that exist. Words in strings count: they are names in other formats.
func learn(files *token.FileSet, path string, source []byte, known map[string]bool) {
	var s scanner.Scanner
	s.Init(files.AddFile(path, -1, len(source)), source, nil, 0)
	for {
		_, tok, text := s.Scan()
		switch tok {
		case token.EOF:
			return
		case token.IDENT:
			known[text] = true
		case token.STRING:
			for _, word := range name.FindAllString(text, -1) {
				known[word] = true
			}
		default:
		}
	}
}

// read returns the findings in a file's comments.
func read(files *token.FileSet, file *ast.File, known map[string]bool) (all []finding) {
	documented := map[*ast.CommentGroup]string{}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			documented[d.Doc] = d.Name.Name
		case *ast.GenDecl:
			if len(d.Specs) != 1 || d.Lparen.IsValid() {
				continue
			}
			switch spec := d.Specs[0].(type) {
			case *ast.TypeSpec:
				documented[d.Doc] = spec.Name.Name
			case *ast.ValueSpec:
				documented[d.Doc] = spec.Names[0].Name
			}
		}
	}
	test := strings.HasSuffix(files.Position(file.Pos()).Filename, "_test.go")
	for _, group := range file.Comments {
		at := files.Position(group.Pos()).String()
		text := strings.Join(strings.Fields(group.Text()), " ")
		add := func(kind, text string) { all = append(all, finding{at, kind, text}) }
		if id := documented[group]; id != "" && text != "" && !test && !strings.HasPrefix(strings.TrimPrefix(text, "A "), id) {
			add(startsElsewhere, id+": "+text[:min(len(text), 60)])
		}
		for _, word := range name.FindAllString(quoted.ReplaceAllString(text, ""), -1) {
			if !known[word] {
				add(unknownName, word)
			}
		}
		for _, s := range sentence.Split(text, -1) {
			switch {
			case person.MatchString(s):
				add(personal, s)
			case where.MatchString(s):
				add(placeForTime, s)
			case len(strings.Fields(s)) > 25 && passive.MatchString(s):
				add(longPassive, s)
			}
		}
	}
	return all
}
