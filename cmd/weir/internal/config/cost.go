package config

import (
	"fmt"
	"strconv"
	"strings"

	"weir/bucket"
)

const costFix = "write a whole number, header:NAME or json:/pointer"

// cost has the fields of what a job takes from a limit: a source, and the place in the response that tells what was
// really used.
func cost(c *bucket.CostSource) section {
	from := of[bucket.CostSource]{
		func(text string) (bucket.CostSource, error) {
			got, err := parseCost(text)
			got.SettleHeader, got.SettlePointer = c.SettleHeader, c.SettlePointer
			return got, err
		}, showCost, fmt.Sprintf("a whole number from 1 to %d, `header:NAME` or a pointer into the job's body", int64(mostQuota)),
		object{"anyOf": []object{wholeSchema(1, mostQuota), pattern(sourcePattern)}},
	}
	settle := of[bucket.CostSource]{
		func(text string) (bucket.CostSource, error) {
			got, err := parseSettle(text)
			c.SettleHeader, c.SettlePointer = got.SettleHeader, got.SettlePointer
			return *c, err
		}, showSettle, "`header:NAME` or a pointer into the answer's body", pattern(sourcePattern),
	}
	return section{fields: []field{
		{name: "from", is: one(c, from), needs: costFix, means: "the expected cost of a job"},
		{name: "settle", is: one(c, settle), otherwise: "none", means: "the actual cost, from the answer"},
	}}
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

// showCost writes the source of a cost as the file does.
func showCost(c bucket.CostSource) string {
	switch {
	case c.Header != "":
		return "header:" + c.Header
	case c.Pointer != "":
		return "json:" + c.Pointer
	}
	return strconv.FormatInt(max(c.Constant, 1), 10)
}

func showSettle(c bucket.CostSource) string {
	switch {
	case c.SettleHeader != "":
		return "header:" + c.SettleHeader
	case c.SettlePointer != "":
		return "json:" + c.SettlePointer
	}
	return ""
}
