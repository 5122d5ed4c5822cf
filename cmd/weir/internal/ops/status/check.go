package status

import (
	"fmt"
	"strings"

	"weir/cmd/weir/internal/cli"
)

// Level is a severity, numbered as in Nagios.
type Level int

// The levels. Unknown means that the check could not be made.
const (
	OK Level = iota
	Warning
	Critical
	Unknown
)

// String returns the level as monitoring systems write it.
func (l Level) String() string {
	return [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[l]
}

// Threshold has the values from which on a check is a warning, or critical. If a field is nil, no value is.
type Threshold struct{ Warn, Crit *float64 }

// Thresholds has the bounds of the numeric checks. Problems are always critical, and warnings always warnings.
type Thresholds struct {
	Jobs    Threshold // unfinished jobs of any api
	Letters Threshold // dead letters of any api
	Used    Threshold // percent of any quota or budget that holds calls once it is used up
}

// Check is the outcome of one check.
type Check struct {
	Name  string  `json:"check"`
	Of    string  `json:"of,omitempty"` // the api, or api/limit
	Level Level   `json:"level"`
	Value float64 `json:"value"`
	Text  string  `json:"text"`

	Threshold `json:"-"`
}

func (t Threshold) level(value float64) Level {
	switch {
	case t.Crit != nil && value >= *t.Crit:
		return Critical
	case t.Warn != nil && value >= *t.Warn:
		return Warning
	}
	return OK
}

// Checks judges the status by thresholds. The first check is of problems, the second of warnings.
func (s *Status) Checks(t Thresholds) []Check {
	problems := Check{Name: "problems", Value: float64(len(s.Problems)), Text: "no problem"}
	if len(s.Problems) > 0 {
		problems.Level, problems.Text = Critical, said(s.Problems)
	}
	warnings := Check{Name: "warnings", Value: float64(len(s.Warnings)), Text: "no warning"}
	if len(s.Warnings) > 0 {
		warnings.Level, warnings.Text = Warning, said(s.Warnings)
	}
	checks := []Check{problems, warnings}
	letters := map[string]uint64{}
	for _, l := range s.Letters {
		letters[l.API] += l.Letters
	}
	for _, a := range s.APIs {
		checks = append(checks, measure("jobs", a.API, float64(a.Jobs), t.Jobs, "has "+cli.Count(a.Jobs, "unfinished job")),
			measure("letters", a.API, float64(letters[a.API]), t.Letters, "has "+cli.Count(letters[a.API], "dead letter")))
		for i := range a.Limits {
			l := &a.Limits[i]
			if l.Lasts() {
				percent := 100 * float64(l.Used) / float64(l.Count)
				checks = append(checks, measure("used", a.API+"/"+l.Limit, percent, t.Used, fmt.Sprintf("is used by %.0f percent", percent)))
			}
		}
	}
	return checks
}

func said(all []Problem) string {
	var what []string
	for _, p := range all {
		what = append(what, p.What)
	}
	return strings.Join(what, "; ")
}

func measure(name, of string, value float64, t Threshold, text string) Check {
	return Check{Name: name, Of: of, Level: t.level(value), Value: value, Text: of + " " + text, Threshold: t}
}

// Worst returns the worst level of all checks. Critical is worse than Unknown, so that a check that could not be made
// hides no problem.
func Worst(checks []Check) (worst Level) {
	for _, c := range checks {
		if c.Level == Critical {
			return Critical
		}
		worst = max(worst, c.Level)
	}
	return worst
}
