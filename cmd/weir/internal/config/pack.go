package config

import (
	"time"

	"weir/cmd/weir/internal/config/field"
	"weir/ingest"
)

// Pack says how weir sends several jobs of a key to an api in one call. A nil *Pack means that each call has one job.
type Pack struct {
	Jobs    int
	Bytes   int64         // of a call's body
	Wait    time.Duration // how long to wait for more jobs
	Request PackForm
	Answers PackForm
	Match   string // JSON pointer to a value that a job and its answer share; "": the answers are in the order of the jobs
	Status  string // JSON pointer to the status in each answer; "": answers have none
}

// PackForm says how one body holds the jobs of a pack, or their answers.
type PackForm struct {
	Lines bool
	Under string // JSON pointer to the array; "": the body is the array
}

// The words for the forms of a body, and for matching by order.
const (
	PackArray = "array"
	PackLines = "lines"
	PackOrder = "order"
)

// Bounds of packs. weir stores the intents of a pack in one message, and holds its jobs in memory together.
const (
	mostPackJobs  = 500
	leastPackSize = 1 << 10
	mostPackSize  = 64 << 20
	longestGather = time.Hour
)

func (p *Pack) section(a *API) field.Section {
	return field.Section{
		Fields: []field.Field{
			{
				Name:  "jobs",
				Is:    field.One(&p.Jobs, field.Whole(1, mostPackJobs)),
				Needs: "write jobs: 50",
				Means: "the most jobs of one call",
			},
			{
				Name: "bytes", Is: field.One(&p.Bytes, field.Size(leastPackSize, mostPackSize)), Or: "256KiB",
				Means: "the longest body of a call. A job that is larger goes alone",
			},
			{
				Name: "wait", Is: field.One(&p.Wait, field.Duration(0, longestGather)), Or: "200ms",
				Means: "how long the first job of a key waits for others, if its slot does not make it wait anyway. No job waits " +
					"beyond its deadline",
			},
			{
				Name: "request", Is: packForm(&p.Request), Or: PackArray,
				Means: "how the jobs stand in the body: as an array, as lines, or as an array under a name, such as `{under: " +
					"\"/requests\"}`",
			},
			{
				Name: "answers", Is: packForm(&p.Answers), Or: PackArray,
				Means: "how their answers stand in the body of the answer",
			},
			{
				Name: "match", Is: field.One(&p.Match, packMatch()), Or: PackOrder,
				Means: "how an answer finds its job. `order`: they have the same order. A pointer, such as `/custom_id`: both " +
					"have the same value there, and weir refuses a job without one with 400",
			},
			{
				Name:      "status",
				Is:        field.One(&p.Status, packPointer("a JSON pointer")),
				Otherwise: "each job is done if the call is",
				Means:     "where each answer has its status, such as `/status`",
			},
		},
		Check: func(f field.Fields) {
			switch {
			case a.Reuse != nil:
				f.Fail("a job of a pack cannot get the answer of an equal job", "remove reuse or pack")
			case a.Operation != nil:
				f.Fail("no operation can be polled for a job of a pack", "remove operation or pack")
			case a.Inquiry != nil:
				f.Fail("the api knows a pack by its own key, and not its jobs, so that an inquiry about one would find nothing "+
					"and could bill it twice",
					"remove inquiry or pack")
			}
		},
	}
}

// packForm returns the kind of a PackForm: a word, or a mapping.
func packForm(at *PackForm) field.Kind {
	inner := func(at *PackForm) field.Section {
		return field.Section{Fields: []field.Field{{
			Name: "under", Is: field.One(&at.Under, packPointer("a JSON pointer")), Needs: `write under: "/requests"`,
			Means: "where the array stands, by names only",
		}}}
	}
	t := field.Word(PackArray, PackLines)
	written := PackArray
	alone := field.One(&written, t)
	return field.Kind{
		Words: "`array`, `lines` or a mapping, below", Inner: func() field.Section { return inner(new(PackForm)) },
		Shape: func(of field.Object) field.Object { return field.Object{"anyOf": []field.Object{t.Schema, of}} },
		Show: func() string {
			switch {
			case at.Lines:
				return PackLines
			case at.Under != "":
				return "under " + at.Under
			}
			return PackArray
		},
		Read: func(v field.Value, or string) field.Texts {
			if *at = (PackForm{}); v.Node == nil || v.IsScalar() {
				alone.Read(v, or)
				at.Lines = written == PackLines
				return nil
			}
			inner(at).Read(v)
			return nil
		},
	}
}

// packPointer returns the type of a JSON pointer into a job's body or its answer.
func packPointer(words string) field.Type[string] {
	return field.Type[string]{Parse: parsePointer, Show: field.Same, Words: words, Schema: field.Pattern("/.*")}
}

// packMatch returns the type of Match: the word PackOrder, which is stored as "", or a JSON pointer.
func packMatch() field.Type[string] {
	return field.Type[string]{
		Parse: func(text string) (string, error) {
			if text == PackOrder {
				return "", nil
			}
			return parsePointer(text)
		},
		Show: func(pointer string) string {
			if pointer == "" {
				return PackOrder
			}
			return pointer
		},
		Words: "`order`, or a JSON pointer", Schema: field.Pattern(PackOrder + "|/.*"),
	}
}

// Rule returns what the intake requires of the api's jobs so that they fit into packs. It is nil for a nil Pack.
func (p *Pack) Rule() *ingest.Packed {
	if p == nil {
		return nil
	}
	return &ingest.Packed{Match: p.Match}
}
