package field

import (
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/config/secret"
)

// Reference is a place in a configuration that refers to secrets or files.
type Reference struct {
	line    int
	path    string
	Parts   []secret.Part
	Resolve bool         // each part is a secret that must resolve
	Check   func() error // reports whether weir can use the referenced values; nil: no check
}

// Refer records that the configuration refers to secrets or files at v.
func (v Value) Refer(r Reference) {
	r.line, r.path = v.Line, v.Path
	v.Doc.References = append(v.Doc.References, r)
}

// Secret returns the kind of a text with references, which weir resolves each time it needs the text. check reports
// whether the present text can be used.
func Secret(at *secret.Template, words string, parse func(string) (secret.Template, error), check func() error) Kind {
	k := One(at, Type[secret.Template]{parse, secret.Template.String, words, AnyText})
	read := k.Read
	k.Read = func(v Value, or string) Texts {
		if read(v, or); v.Node != nil {
			v.Refer(Reference{Parts: at.References(), Resolve: true, Check: check})
		}
		return nil
	}
	return k
}

// Missing returns why the reference is of no use: scope does not allow it, it does not resolve on this machine now, or
// its check fails.
func (r Reference) Missing(scope *secret.Scope) (problems []problem.Problem) {
	add := func(message, fix string) {
		problems = append(problems, problem.Problem{Line: r.line, Path: r.path, Message: message, Fix: fix})
	}
	for _, p := range r.Parts {
		if !scope.Allows(p) {
			add(p.String()+" is allowed neither by the file that weir was started with nor by WEIR_SECRETS",
				"name it in WEIR_SECRETS where weir serve runs, or in its own file")
			continue
		}
		if !r.Resolve {
			continue
		}
		if _, err := p.Resolve(); err != nil {
			add(err.Error(), "provide it where weir serve runs")
		}
	}
	if len(problems) == 0 && r.Check != nil {
		if err := r.Check(); err != nil {
			add(err.Error(), "provide it where weir serve runs")
		}
	}
	return problems
}
