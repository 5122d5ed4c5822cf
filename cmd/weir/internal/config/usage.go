package config

import (
	"fmt"

	"weir/ingest"
)

// mostUsage bounds the numbers of an answer that are counted: each is a series of metrics.
const mostUsage = 16

// Usage is a number of an api's answers that is counted for reports.
type Usage struct {
	Name string
	From ingest.Source // a place in the answer
}

// usage is a mapping of names that the user chooses to places in the answer.
func usage(at *[]Usage) kind {
	place := answerPlace()
	return kind{
		words: fmt.Sprintf("a mapping of names to `header:NAME` or pointers into the answer's body, at most %d", mostUsage),
		shape: func(object) object {
			return object{
				"type": []string{"object", "null"}, "patternProperties": object{namePattern: place.schema},
				"additionalProperties": false, "maxProperties": mostUsage,
			}
		},
		read: func(v value, _ string) texts {
			*at = nil
			all := texts{}
			entries, _ := v.entries(mostUsage)
			for _, e := range entries {
				if _, err := parseName(e.name); err != nil {
					e.failWith(err)
					continue
				}
				if written, ok := e.scalar(); ok {
					from, err := place.parse(written)
					if err != nil {
						e.failWith(err)
						continue
					}
					*at = append(*at, Usage{e.name, from})
					all[joinPath("", e.name)] = text{text: formatSource(from)}
				}
			}
			return all
		},
	}
}
