package dispatcher

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"weir/bucket"
	"weir/ingest"
)

// Cost is how many units a job takes from a limit with this source: 1 when the source names nothing, or names a header
// that the job does not have.
func Cost(source bucket.CostSource, j *ingest.Job) (int64, error) {
	switch {
	case source.Constant > 0:
		return source.Constant, nil
	case strings.EqualFold(source.Header, ingest.HeaderCost):
		return j.Cost, nil
	case source.Header != "":
		for name, values := range j.Header {
			if strings.EqualFold(name, source.Header) && len(values) > 0 {
				return wholeCost(values[0], "header "+source.Header)
			}
		}
		return 1, nil
	case source.Pointer != "":
		value, err := ingest.Pointed(j.Body, source.Pointer)
		if err != nil {
			return 0, err
		}
		number, ok := value.(json.Number)
		if !ok {
			return 0, fmt.Errorf("what %s points to is not a number", source.Pointer)
		}
		return wholeCost(number.String(), source.Pointer)
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
