package ingest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// CostSource says how many units a job takes from a limit. The zero value is one unit a call.
type CostSource struct {
	Constant int64  // if above zero
	Header   string // a job header that holds a whole number
	Pointer  string // a JSON pointer (RFC 6901) into the job's body
}

// CostBound is the most that a job may cost at one limit of its api. A job that costs more could never be called.
type CostBound struct {
	Limit string // the name of the limit
	From  CostSource
	Most  int64
}

// Of returns how many units a job takes: 1 if the source names nothing, or a header that the job does not have.
func (s CostSource) Of(j *Job) (int64, error) {
	switch {
	case s.Constant > 0:
		return s.Constant, nil
	case strings.EqualFold(s.Header, HeaderCost):
		return j.Cost, nil
	case s.Header != "":
		for name, values := range j.Header {
			if strings.EqualFold(name, s.Header) && len(values) > 0 {
				return wholeCost(values[0], "header "+s.Header)
			}
		}
		return 1, nil
	case s.Pointer != "":
		value, err := Pointed(j.Body, s.Pointer)
		if err != nil {
			return 0, err
		}
		number, ok := value.(json.Number)
		if !ok {
			return 0, fmt.Errorf("what %s points to is not a number", s.Pointer)
		}
		return wholeCost(number.String(), s.Pointer)
	}
	return 1, nil
}

func wholeCost(text, where string) (int64, error) {
	cost, err := strconv.ParseInt(text, 10, 64)
	if err != nil || cost < 1 {
		return 0, fmt.Errorf("the cost in %s is not a whole number from 1", where)
	}
	return cost, nil
}

// checkCosts refuses a job whose cost cannot be read or exceeds a limit. Such a job would wait forever and block its
// key.
func (j *Job) checkCosts(rule *Rule) *Refusal {
	for i := range rule.Costs {
		bound := &rule.Costs[i]
		cost, err := bound.From.Of(j)
		if err != nil {
			return refuse(Invalid, "limit %s: %v", bound.Limit, err)
		}
		if cost > bound.Most {
			return refuse(Invalid, "limit %s: the job's cost can never pass: the limit lets at most %d through at once", bound.Limit, bound.Most)
		}
	}
	return nil
}
