package config

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

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
func cost(at *ingest.Cost, usage *[]Usage) kind {
	t := source(1)
	return terms(at, of[ingest.Cost]{
		func(text string) (ingest.Cost, error) {
			s, err := t.parse(text)
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
		formatCost, fmt.Sprintf("a whole number from 1 to %d, `header:NAME`, a pointer", int64(mostQuota)), t.schema,
	}, func(t *ingest.Term) section { return unitsTerm(t, usage) })
}

// price returns the kind of a call's price: an amount of money, a term, or a list of terms. Terms may name the counters
// in usage.
func price(at *ingest.Cost, usage *[]Usage) kind {
	return terms(at, of[ingest.Cost]{
		func(text string) (ingest.Cost, error) {
			amount, err := ParseMoney(text)
			return ingest.Units(int64(amount)), err
		},
		formatPrice, "money", money().schema,
	}, func(t *ingest.Term) section { return moneyTerm(t, usage) })
}

// terms returns the kind of a field that is a single value, a term, or a list of terms. A call takes the sum of the
// list.
func terms(at *ingest.Cost, short of[ingest.Cost], term func(*ingest.Term) section) kind {
	alone := one(at, short)
	k := kind{
		words: short.words + fmt.Sprintf(", a term, or a list of at most %d terms, below", mostTerms),
		inner: func() section { return term(new(ingest.Term)) },
		shape: func(inner object) object {
			return object{"anyOf": []object{short.schema, inner, list(inner, mostTerms)}}
		},
		show: alone.show,
	}
	k.read = func(v value, or string) texts {
		*at = nil
		if v.node == nil || v.isScalar() {
			return alone.read(v, or)
		}
		items := []value{v}
		if v.isList() {
			if items = v.list(mostTerms); len(v.node.Content) == 0 {
				v.fail("has no term", "write one, or remove the field")
			}
		}
		for _, item := range items {
			var t ingest.Term
			term(&t).read(item)
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
	each           Money
	per            int64
}

// unitsTerm returns the fields of a term of a cost.
func unitsTerm(t *ingest.Term, usage *[]Usage) section {
	at := &termFields{Term: t, usage: usage}
	return section{fields: at.fields(), check: at.check}
}

// moneyTerm returns the fields of a term of a price.
func moneyTerm(t *ingest.Term, usage *[]Usage) section {
	at := &termFields{Term: t, usage: usage}
	return section{
		fields: append([]field{
			{
				name: "each", is: one(&at.each, money()), needs: "write each: 0.002, and per: 1000000 if that is the price of a million units",
				means: "the price of `per` units",
			},
			{
				name: "per", is: one(&at.per, whole[int64](1, mostPer)), or: "1",
				means: "how many units `each` pays for, as in `1000000` tokens",
			},
		}, at.fields()...),
		check: func(f fields) {
			at.check(f)
			weight, exact := at.Weight.Times(int64(at.each), max(1, at.per))
			if !exact {
				f.place("each").fail("is too fine or too large with this per and times", "write fewer digits")
			}
			at.Weight = weight
		},
	}
}

// fields returns the fields that terms of costs and of prices share.
func (t *termFields) fields() []field {
	number := whole[int64](0, mostQuota).prefixed("a whole number from ")
	return []field{
		{name: "from", is: one(&t.From, source(0)), or: "1", means: "the number that is expected before the call. 0 needs `settle`"},
		{
			name: "settle", is: settled(&t.Settle, t.usage), otherwise: "none",
			means: "the actual number, from the answer. If a list is given, weir uses the first place that the answer has",
		},
		{
			name: "times", is: one(&t.weight, weight()), or: "1",
			means: "the weight of the number. The term is rounded up to a whole unit",
		},
		{
			name: "default", is: maybe(&t.otherwise, number), otherwise: "none",
			means: "the number for a job that has nothing at `from`. Without it weir refuses such a job with 400; if `from` is " +
				"`header:Weir-Cost`, the default is 1",
		},
		{
			name: "max", is: maybe(&t.max, whole[int64](1, mostQuota).prefixed("a whole number from ")), otherwise: "none",
			means: "the largest number that a job may have at `from`. weir refuses a larger number with 400",
		},
		{
			name: "learn", is: one(&t.learn, word("p50", "p90", "p95", "p99")), otherwise: "none",
			means: "weir expects at most this percentile of the last 256 numbers at `settle`, as soon as there are 16 of them ([costs](costs.md))",
		},
	}
}

// check completes the term and reports the problems that its fields cause together.
func (t *termFields) check(f fields) {
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
	if !f.clean() {
		return
	}
	const fix = "remove it, or write from: header:NAME or json:/pointer"
	switch {
	case !t.From.IsPlace() && t.From.Number == 0 && !t.Settle.IsPlace():
		f.place("from").fail("takes nothing: a call would reserve 0, and nothing settles it", "write a number above 0, or settle: json:/pointer")
	case !t.From.IsPlace() && f.has("default"):
		f.place("default").fail("means nothing for a number in from", fix)
	case !t.From.IsPlace() && f.has("max"):
		f.place("max").fail("means nothing for a number in from", fix)
	case t.Max > 0 && t.Default > t.Max:
		f.place("default").fail("is more than max", "lower it to "+strconv.FormatInt(t.Max, 10)+" or less")
	case t.Learn > 0 && !t.Settle.IsPlace():
		f.place("learn").fail("has nothing to learn from", "write settle: json:/pointer or header:NAME of the answer")
	}
}

// source returns the type of a number's origin: a constant of at least least, or a place in the job.
func source(least int64) of[ingest.Source] {
	return of[ingest.Source]{
		func(text string) (ingest.Source, error) {
			header, pointer, err := parseSource(text)
			if err != nil || header != "" || pointer != "" {
				return ingest.Source{Header: header, Pointer: pointer}, err
			}
			if text == "" || strings.Trim(text, "-0123456789") != "" {
				return ingest.Source{}, refuse(costFix, "%s is no cost", quote(text))
			}
			n, err := wholeIn(least, mostQuota)(text)
			return ingest.Source{Number: n}, err
		},
		formatSource, fmt.Sprintf("a whole number from %d to %d, `header:NAME` or a pointer into the job's body", least, int64(mostQuota)),
		object{"anyOf": []object{wholeSchema(least, mostQuota), pattern(sourcePattern)}},
	}
}

// answerHeader returns the type of an answer's header.
func answerHeader() of[ingest.Source] {
	const fix = "write header:NAME, the name of a header of the answer"
	place := answerPlace()
	return of[ingest.Source]{
		func(text string) (ingest.Source, error) {
			s, err := place.parse(text)
			if err != nil || s.Header == "" {
				return ingest.Source{}, refuse(fix, "%s is no header of an answer", quote(text))
			}
			return s, nil
		}, place.show, "`header:NAME`", pattern("header:.+"),
	}
}

// weight returns the type of a factor by which a term multiplies its number.
func weight() of[ingest.Weight] {
	return of[ingest.Weight]{
		parseTimes, formatWeight,
		fmt.Sprintf("a number above 0 and at most %d, with at most six digits after the point", mostTimes), orNumber(numberPattern),
	}
}

// parseTimes reads a weight above 0 and at most mostTimes, with at most six digits after the point.
func parseTimes(text string) (ingest.Weight, error) {
	const fix = "write a number above 0 such as 5, 1.25 or 0.000001"
	n, ok := parseDecimal(text)
	times, exact := n.times(millionths)
	switch {
	case !ok || times == 0 && exact:
		return ingest.Weight{}, refuse(fix, "%s is no weight", quote(text))
	case !exact:
		return ingest.Weight{}, refuse(fix, "%s is finer than a millionth", quote(text))
	case times > mostTimes*millionths:
		return ingest.Weight{}, refuse(fix, "%s is more than %d", quote(text), mostTimes)
	}
	if times == millionths {
		return ingest.Weight{}, nil
	}
	w, _ := ingest.Weight{}.Times(times, millionths)
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
		return Money(c.Usual()).String()
	}
	return formatTerms(c, func(t *ingest.Term) string {
		if !t.From.IsPlace() && !t.Settle.IsPlace() {
			return Money(t.Weight.Of(t.From.Number)).String()
		}
		return formatSource(t.From) + " at " + formatEach(t.Weight)
	})
}

// formatEach writes the price of a million units if that is a whole number of millionths, else the price of w.Den
// units.
func formatEach(w ingest.Weight) string {
	if million, exact := w.Times(millionths, 1); exact && million.Den == 1 {
		return Money(million.Num).String() + " a million"
	}
	return Money(w.Num).String() + " for " + strconv.FormatInt(w.Den, 10)
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
	text := Money(w.Num * (millionths / w.Den)).String()
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// maybe returns the kind of a single value that may be absent. *at is nil if the value is absent.
func maybe[T any](at **T, t of[T]) kind {
	held := new(T)
	k := one(held, t)
	read := k.read
	k.show = func() string {
		if *at == nil {
			return ""
		}
		return t.show(**at)
	}
	k.read = func(v value, or string) texts {
		read(v, or)
		if *at = nil; v.node != nil {
			*at = held
		}
		return nil
	}
	return k
}
