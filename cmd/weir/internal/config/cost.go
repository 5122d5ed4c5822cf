package config

import (
	"strconv"
	"strings"

	"weir/bucket"
)

const costFix = "write a whole number, header:NAME or json:/pointer"

// readCost reads what a job takes from a limit: a source alone, or {from: source, settle: source} where settle names
// the place in the response that tells what was really used.
func readCost(f fields) bucket.CostSource {
	v, ok := f.byName["cost"]
	if !ok {
		return bucket.CostSource{}
	}
	if v.isScalar() {
		return readValue(v, bucket.CostSource{}, parseCost)
	}
	m, ok := v.fields("from", "settle")
	if ok {
		m.require("from", costFix)
	}
	c := read(m, "from", bucket.CostSource{}, parseCost)
	settle := read(m, "settle", bucket.CostSource{}, parseSettle)
	c.SettleHeader, c.SettlePointer = settle.SettleHeader, settle.SettlePointer
	return c
}

func parseCost(text string) (bucket.CostSource, error) {
	header, pointer, err := parseSource(text)
	if err != nil || header != "" || pointer != "" {
		return bucket.CostSource{Header: header, Pointer: pointer}, err
	}
	if text == "" || strings.Trim(text, "-0123456789") != "" {
		return bucket.CostSource{}, refuse(costFix, "%s is no cost", quote(text))
	}
	n, err := wholeIn(1, mostQuota)(text)
	return bucket.CostSource{Constant: n}, err
}

func parseSettle(text string) (bucket.CostSource, error) {
	header, pointer, err := parseSource(text)
	if err == nil && header == "" && pointer == "" {
		err = refuse("write header:NAME or json:/pointer", "%s is no place in a response", quote(text))
	}
	return bucket.CostSource{SettleHeader: header, SettlePointer: pointer}, err
}

// formatCost writes a cost as the file does.
func formatCost(c bucket.CostSource) string {
	text := strconv.FormatInt(max(c.Constant, 1), 10)
	switch {
	case c.Header != "":
		text = "header:" + c.Header
	case c.Pointer != "":
		text = "json:" + c.Pointer
	}
	switch {
	case c.SettleHeader != "":
		text += " settled by header:" + c.SettleHeader
	case c.SettlePointer != "":
		text += " settled by json:" + c.SettlePointer
	}
	return text
}
