package config

import (
	"time"

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

func (p *Pack) section(a *API) section {
	return section{
		fields: []field{
			{name: "jobs", is: one(&p.Jobs, whole(1, mostPackJobs)), needs: "write jobs: 50", means: "the most jobs of one call"},
			{
				name: "bytes", is: one(&p.Bytes, size(leastPackSize, mostPackSize)), or: "256KiB",
				means: "the longest body of a call. A job that is larger goes alone",
			},
			{
				name: "wait", is: one(&p.Wait, duration(0, longestGather)), or: "200ms",
				means: "how long the first job of a key waits for others, if its slot does not make it wait anyway. No job waits beyond its deadline",
			},
			{
				name: "request", is: packForm(&p.Request), or: PackArray,
				means: "how the jobs stand in the body: as an array, as lines, or as an array under a name, such as `{under: \"/requests\"}`",
			},
			{
				name: "answers", is: packForm(&p.Answers), or: PackArray,
				means: "how their answers stand in the body of the answer",
			},
			{
				name: "match", is: one(&p.Match, packMatch()), or: PackOrder,
				means: "how an answer finds its job. `order`: they have the same order. A pointer, such as `/custom_id`: both have the same " +
					"value there, and weir refuses a job without one with 400",
			},
			{
				name: "status", is: one(&p.Status, packPointer("a JSON pointer")), otherwise: "each job is done if the call is",
				means: "where each answer has its status, such as `/status`",
			},
		},
		check: func(f fields) {
			switch {
			case a.Reuse != nil:
				f.fail("a job of a pack cannot get the answer of an equal job", "remove reuse or pack")
			case a.Operation != nil:
				f.fail("no operation can be polled for a job of a pack", "remove operation or pack")
			case a.Inquiry != nil:
				f.fail("the api knows a pack by its own key, and not its jobs, so that an inquiry about one would find nothing and could bill it twice",
					"remove inquiry or pack")
			}
		},
	}
}

// packForm returns the kind of a PackForm: a word, or a mapping.
func packForm(at *PackForm) kind {
	inner := func(at *PackForm) section {
		return section{fields: []field{{
			name: "under", is: one(&at.Under, packPointer("a JSON pointer")), needs: `write under: "/requests"`,
			means: "where the array stands, by names only",
		}}}
	}
	t := word(PackArray, PackLines)
	written := PackArray
	alone := one(&written, t)
	return kind{
		words: "`array`, `lines` or a mapping, below", inner: func() section { return inner(new(PackForm)) },
		shape: func(of object) object { return object{"anyOf": []object{t.schema, of}} },
		show: func() string {
			switch {
			case at.Lines:
				return PackLines
			case at.Under != "":
				return "under " + at.Under
			}
			return PackArray
		},
		read: func(v value, or string) texts {
			if *at = (PackForm{}); v.node == nil || v.isScalar() {
				alone.read(v, or)
				at.Lines = written == PackLines
				return nil
			}
			inner(at).read(v)
			return nil
		},
	}
}

// packPointer returns the type of a JSON pointer into a job's body or its answer.
func packPointer(words string) of[string] {
	return of[string]{parsePointer, same, words, pattern("/.*")}
}

// packMatch returns the type of Match: the word PackOrder, which is stored as "", or a JSON pointer.
func packMatch() of[string] {
	return of[string]{
		func(text string) (string, error) {
			if text == PackOrder {
				return "", nil
			}
			return parsePointer(text)
		},
		func(pointer string) string {
			if pointer == "" {
				return PackOrder
			}
			return pointer
		},
		"`order`, or a JSON pointer", pattern(PackOrder + "|/.*"),
	}
}

// Rule returns what the intake requires of the api's jobs so that they fit into packs. It is nil for a nil Pack.
func (p *Pack) Rule() *ingest.Packed {
	if p == nil {
		return nil
	}
	return &ingest.Packed{Match: p.Match}
}
