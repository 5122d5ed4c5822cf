package config

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"
	"weir/ingest"
)

const (
	costFix = "write a whole number, header:NAME or json:/pointer"
	// mostTerms bounds the terms of a cost or a price. Each call reads all of them.
	mostTerms = 16
	// mostPer bounds the number of units that a price is stated for.
	mostPer = 1_000_000_000
	// mostTimes bounds a weight.
	mostTimes = 1_000_000
)

// cost returns the kind of a limit's cost: how many units a job takes from the limit. It is a source alone, a term, or
// a list of terms. A nil cost is one unit. Terms may name the counters in usage.
func cost(at *ingest.Cost, usage *[]Usage) field.Kind {
	t := source(1)
	return terms(at, field.Type[ingest.Cost]{
		Parse: func(text string) (ingest.Cost, error) {
			s, err := t.Parse(text)
			switch {
			case err != nil:
				return nil, err
			case s.Header != "":
				return ingest.FromHeader(s.Header), nil
			case s.Pointer != "":
				return ingest.FromPointer(s.Pointer), nil
			}
			return ingest.Units(s.Number), nil
		},
		Show:   formatCost,
		Words:  fmt.Sprintf("a whole number from 1 to %d, `header:NAME`, a pointer", int64(grammar.MostQuota)),
		Schema: t.Schema,
	}, func(t *ingest.Term) field.Section { return unitsTerm(t, usage) })
}

// price returns the kind of a call's price: an amount of money, a term, or a list of terms. Terms may name the counters
// in usage.
func price(at *ingest.Cost, usage *[]Usage) field.Kind {
	return terms(at, field.Type[ingest.Cost]{
		Parse: func(text string) (ingest.Cost, error) {
			amount, err := grammar.ParseMoney(text)
			return ingest.Units(int64(amount)), err
		},
		Show: formatPrice, Words: "money", Schema: field.Money().Schema,
	}, func(t *ingest.Term) field.Section { return moneyTerm(t, usage) })
}

// terms returns the kind of a field that is a single value, a term, or a list of terms. A call takes the sum of the
// list.
func terms(at *ingest.Cost, short field.Type[ingest.Cost], term func(*ingest.Term) field.Section) field.Kind {
	alone := field.One(at, short)
	k := field.Kind{
		Words: short.Words + fmt.Sprintf(", a term, or a list of at most %d terms, below", mostTerms),
		Inner: func() field.Section { return term(new(ingest.Term)) },
		Shape: func(inner field.Object) field.Object {
			return field.Object{"anyOf": []field.Object{short.Schema, inner, field.List(inner, mostTerms)}}
		},
		Show: alone.Show,
	}
	k.Read = func(v field.Value, or string) field.Texts {
		*at = nil
		if v.Node == nil || v.IsScalar() {
			return alone.Read(v, or)
		}
		items := []field.Value{v}
		if v.IsList() {
			if items = v.List(mostTerms); len(v.Node.Content) == 0 {
				v.Fail("has no term", "write one, or remove the field")
			}
		}
		for _, item := range items {
			var t ingest.Term
			term(&t).Read(item)
			*at = append(*at, t)
		}
		return nil
	}
	return k
}

// termFields holds the values of a term's fields until check has all of them.
type termFields struct {
	*ingest.Term
	usage          *[]Usage
	weight         ingest.Weight
	otherwise, max *int64
	learn          string
	each           grammar.Money
	per            int64
}

// unitsTerm returns the fields of a term of a cost.
func unitsTerm(t *ingest.Term, usage *[]Usage) field.Section {
	at := &termFields{Term: t, usage: usage}
	return field.Section{Fields: at.fields(), Check: at.check}
}

// moneyTerm returns the fields of a term of a price.
func moneyTerm(t *ingest.Term, usage *[]Usage) field.Section {
	at := &termFields{Term: t, usage: usage}
	return field.Section{
		Fields: append([]field.Field{
			{
				Name:  "each",
				Is:    field.One(&at.each, field.Money()),
				Needs: "write each: 0.002, and per: 1000000 if that is the price of a million units",
				Means: "the price of `per` units",
			},
			{
				Name: "per", Is: field.One(&at.per, field.Whole[int64](1, mostPer)), Or: "1",
				Means: "how many units `each` pays for, as in `1000000` tokens",
			},
		}, at.fields()...),
		Check: func(f field.Fields) {
			at.check(f)
			weight, exact := at.Weight.Times(int64(at.each), max(1, at.per))
			if !exact {
				f.Place("each").Fail("is too fine or too large with this per and times", "write fewer digits")
			}
			at.Weight = weight
		},
	}
}

// fields returns the fields that terms of costs and of prices share.
func (t *termFields) fields() []field.Field {
	number := field.Whole[int64](0, grammar.MostQuota).Prefixed("a whole number from ")
	return []field.Field{
		{
			Name:  "from",
			Is:    field.One(&t.From, source(0)),
			Or:    "1",
			Means: "the number that is expected before the call. 0 needs `settle`",
		},
		{
			Name: "settle", Is: settled(&t.Settle, t.usage), Otherwise: "none",
			Means: "the actual number, from the answer. If a list is given, weir uses the first place that the answer has",
		},
		{
			Name: "times", Is: field.One(&t.weight, weight()), Or: "1",
			Means: "the weight of the number. The term is rounded up to a whole unit",
		},
		{
			Name: "default", Is: maybe(&t.otherwise, number), Otherwise: "none",
			Means: "the number for a job that has nothing at `from`. Without it weir refuses such a job with 400; if `from` " +
				"is `header:Weir-Cost`, the default is 1",
		},
		{
			Name:      "max",
			Is:        maybe(&t.max, field.Whole[int64](1, grammar.MostQuota).Prefixed("a whole number from ")),
			Otherwise: "none",
			Means:     "the largest number that a job may have at `from`. weir refuses a larger number with 400",
		},
		{
			Name: "learn", Is: field.One(&t.learn, field.Word("p50", "p90", "p95", "p99")), Otherwise: "none",
			Means: "weir expects at most this percentile of the last 256 numbers at `settle`, as soon as there are 16 of them " +
				"([costs](costs.md))",
		},
	}
}

// check completes the term and reports the problems that its fields cause together.
func (t *termFields) check(f field.Fields) {
	t.Weight, t.NoDefault = t.weight, t.otherwise == nil
	if t.otherwise != nil {
		t.Default = *t.otherwise
	}
	if strings.EqualFold(t.From.Header, ingest.HeaderCost) && t.NoDefault {
		t.Default, t.NoDefault = 1, false // as without a limit: a job that names no cost costs 1
	}
	if t.max != nil {
		t.Max = *t.max
	}
	if t.learn != "" {
		t.Learn, _ = strconv.Atoi(t.learn[1:])
	}
	if !f.Clean() {
		return
	}
	const fix = "remove it, or write from: header:NAME or json:/pointer"
	switch {
	case !t.From.IsPlace() && t.From.Number == 0 && !t.Settle.IsPlace():
		f.Place("from").Fail("takes nothing: a call would reserve 0, and nothing settles it",
			"write a number above 0, or settle: json:/pointer")
	case !t.From.IsPlace() && f.Has("default"):
		f.Place("default").Fail("means nothing for a number in from", fix)
	case !t.From.IsPlace() && f.Has("max"):
		f.Place("max").Fail("means nothing for a number in from", fix)
	case t.Max > 0 && t.Default > t.Max:
		f.Place("default").Fail("is more than max", "lower it to "+strconv.FormatInt(t.Max, 10)+" or less")
	case t.Learn > 0 && !t.Settle.IsPlace():
		f.Place("learn").Fail("has nothing to learn from", "write settle: json:/pointer or header:NAME of the answer")
	}
}

// source returns the type of a number's origin: a constant of at least least, or a place in the job.
func source(least int64) field.Type[ingest.Source] {
	return field.Type[ingest.Source]{
		Parse: func(text string) (ingest.Source, error) {
			header, pointer, err := parseSource(text)
			if err != nil || header != "" || pointer != "" {
				return ingest.Source{Header: header, Pointer: pointer}, err
			}
			if text == "" || strings.Trim(text, "-0123456789") != "" {
				return ingest.Source{}, problem.Refuse(costFix, "%s is no cost", problem.Quote(text))
			}
			n, err := grammar.WholeIn(least, grammar.MostQuota)(text)
			return ingest.Source{Number: n}, err
		},
		Show: formatSource,
		Words: fmt.Sprintf("a whole number from %d to %d, `header:NAME` or a pointer into the job's body", least,
			int64(grammar.MostQuota)),
		Schema: field.Object{
			"anyOf": []field.Object{field.WholeSchema(least, grammar.MostQuota), field.Pattern(sourcePattern)},
		},
	}
}

// answerHeader returns the type of an answer's header.
func answerHeader() field.Type[ingest.Source] {
	const fix = "write header:NAME, the name of a header of the answer"
	place := answerPlace()
	return field.Type[ingest.Source]{
		Parse: func(text string) (ingest.Source, error) {
			s, err := place.Parse(text)
			if err != nil || s.Header == "" {
				return ingest.Source{}, problem.Refuse(fix, "%s is no header of an answer", problem.Quote(text))
			}
			return s, nil
		}, Show: place.Show, Words: "`header:NAME`", Schema: field.Pattern("header:.+"),
	}
}

// weight returns the type of a factor by which a term multiplies its number.
func weight() field.Type[ingest.Weight] {
	return field.Type[ingest.Weight]{
		Parse: parseTimes, Show: formatWeight,
		Words:  fmt.Sprintf("a number above 0 and at most %d, with at most six digits after the point", mostTimes),
		Schema: field.OrNumber(field.NumberPattern),
	}
}

// parseTimes reads a weight above 0 and at most mostTimes, with at most six digits after the point.
func parseTimes(text string) (ingest.Weight, error) {
	const fix = "write a number above 0 such as 5, 1.25 or 0.000001"
	n, ok := grammar.ParseDecimal(text)
	times, exact := n.Times(grammar.Millionths)
	switch {
	case !ok || times == 0 && exact:
		return ingest.Weight{}, problem.Refuse(fix, "%s is no weight", problem.Quote(text))
	case !exact:
		return ingest.Weight{}, problem.Refuse(fix, "%s is finer than a millionth", problem.Quote(text))
	case times > mostTimes*grammar.Millionths:
		return ingest.Weight{}, problem.Refuse(fix, "%s is more than %d", problem.Quote(text), mostTimes)
	}
	if times == grammar.Millionths {
		return ingest.Weight{}, nil
	}
	w, _ := ingest.Weight{}.Times(times, grammar.Millionths)
	return w, nil
}

// formatCost writes a cost in one line. Costs with different meanings have different lines.
func formatCost(c ingest.Cost) string {
	if c == nil {
		return ""
	}
	return formatTerms(c, func(t *ingest.Term) string {
		if t.Weight == (ingest.Weight{}) {
			return formatSource(t.From)
		}
		return formatSource(t.From) + " times " + formatWeight(t.Weight)
	})
}

// formatPrice writes a price in one line. Prices with different meanings have different lines.
func formatPrice(c ingest.Cost) string {
	if c.Fixed() {
		return grammar.Money(c.Usual()).String()
	}
	return formatTerms(c, func(t *ingest.Term) string {
		if !t.From.IsPlace() && !t.Settle.IsPlace() {
			return grammar.Money(t.Weight.Of(t.From.Number)).String()
		}
		return formatSource(t.From) + " at " + formatEach(t.Weight)
	})
}

// formatEach writes the price of a million units if that is a whole number of millionths, else the price of w.Den
// units.
func formatEach(w ingest.Weight) string {
	if million, exact := w.Times(grammar.Millionths, 1); exact && million.Den == 1 {
		return grammar.Money(million.Num).String() + " a million"
	}
	return grammar.Money(w.Num).String() + " for " + strconv.FormatInt(w.Den, 10)
}

func formatTerms(c ingest.Cost, number func(*ingest.Term) string) string {
	parts := make([]string, len(c))
	for i := range c {
		t := &c[i]
		text := number(t)
		if t.From.IsPlace() && !t.NoDefault {
			text += " default " + strconv.FormatInt(t.Default, 10)
		}
		if t.Max > 0 {
			text += " max " + strconv.FormatInt(t.Max, 10)
		}
		if t.Settle.IsPlace() {
			text += " settled by " + formatSource(t.Settle)
		}
		if t.Learn > 0 {
			text += " learned p" + strconv.Itoa(t.Learn)
		}
		parts[i] = text
	}
	return strings.Join(parts, " + ")
}

func formatSource(s ingest.Source) string {
	var places []string
	for at := range s.Places() {
		if at.Header != "" {
			places = append(places, "header:"+at.Header)
		} else {
			places = append(places, "json:"+at.Pointer)
		}
	}
	return cmp.Or(strings.Join(places, " or "), strconv.FormatInt(s.Number, 10))
}

// formatWeight writes a weight that parseTimes read. Such a weight has a denominator that divides a million.
func formatWeight(w ingest.Weight) string {
	if w == (ingest.Weight{}) {
		return "1"
	}
	text := grammar.Money(w.Num * (grammar.Millionths / w.Den)).String()
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// maybe returns the kind of a single value that may be absent. *at is nil if the value is absent.
func maybe[T any](at **T, t field.Type[T]) field.Kind {
	held := new(T)
	k := field.One(held, t)
	read := k.Read
	k.Show = func() string {
		if *at == nil {
			return ""
		}
		return t.Show(**at)
	}
	k.Read = func(v field.Value, or string) field.Texts {
		read(v, or)
		if *at = nil; v.Node != nil {
			*at = held
		}
		return nil
	}
	return k
}
