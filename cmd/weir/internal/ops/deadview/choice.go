package deadview

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/config/grammar"
	"weir/deadletter"
	"weir/ingest"
)

// Choice selects letters by texts that a user wrote. A field that is "" selects all letters.
type Choice struct {
	API    string // _ for jobs of unknown apis
	Key    string
	Reason string
	Since  string // RFC 3339, or how long ago
	Until  string
	Status string // 503, 5xx, or 0 for none
	Job    string
}

// Filter checks and converts a choice. Its errors begin with the name of the wrong field.
func (c *Choice) Filter(now time.Time) (deadletter.Filter, error) {
	f := deadletter.Filter{API: c.API, Key: c.Key, Reason: deadletter.Reason(c.Reason), Job: c.Job}
	if c.Reason != "" && !slices.Contains(deadletter.Reasons(), f.Reason) {
		return f, fmt.Errorf("reason %q: the reasons are %s", c.Reason, ReasonNames())
	}
	err := ingest.CheckChoice(c.API, c.Key)
	if err != nil {
		return f, err
	}
	if f.Since, err = ReadTime(c.Since, now); err != nil {
		return f, fmt.Errorf("since %w", err)
	}
	if f.Until, err = ReadTime(c.Until, now); err != nil {
		return f, fmt.Errorf("until %w", err)
	}
	if f.Status, err = readStatus(c.Status); err != nil {
		return f, fmt.Errorf("status %w", err)
	}
	return f, nil
}

// String describes the choice, for events.
func (c *Choice) String() string {
	var parts []string
	for _, part := range [][2]string{
		{"api", c.API}, {"key", c.Key}, {"reason", c.Reason}, {"since", c.Since}, {"until", c.Until}, {"status", c.Status},
	} {
		if part[1] != "" {
			parts = append(parts, part[0]+"="+part[1])
		}
	}
	return strings.Join(parts, " ")
}

// Selection is a selection of letters. Said is the text by which the user selected them, for events and tasks.
type Selection struct {
	deadletter.Selection
	Said string
}

// Select converts a choice to a selection. If seqs is not empty, seqs selects the letters, and the choice must be
// empty.
func (c *Choice) Select(seqs []uint64, now time.Time) (s Selection, err error) {
	if len(seqs) > 0 {
		if *c != (Choice{}) {
			return s, errors.New("name letters by their numbers or choose them by the other fields, not both")
		}
		return Selection{deadletter.Selection{Seqs: seqs}, strings.Trim(fmt.Sprint(seqs), "[]")}, nil
	}
	s.Filter, err = c.Filter(now)
	s.Said = c.String()
	return s, err
}

// ReasonNames returns all reasons, separated by commas.
func ReasonNames() string {
	var names []string
	for _, r := range deadletter.Reasons() {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

// ReadTime returns the time that text says, as an RFC 3339 time or as a duration before now. It returns zero if text is
// "".
func ReadTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	ago, err := grammar.ParseDuration(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is neither an RFC 3339 time such as %s nor a duration such as 2h or 1d", text, now.UTC().Format(time.RFC3339))
	}
	return now.Add(-ago), nil
}

// noAnswer selects letters without an answer. Only these letters have a status below 1.
var noAnswer = deadletter.StatusRange{From: -1, To: 0}

func readStatus(text string) (deadletter.StatusRange, error) {
	wrong := fmt.Errorf("%q is not a status such as 503, a class from 1xx to 5xx, or 0", text)
	if class, ok := strings.CutSuffix(strings.ToLower(text), "xx"); ok {
		n, err := strconv.Atoi(class)
		if err != nil || n < 1 || n > 5 {
			return deadletter.StatusRange{}, wrong
		}
		return deadletter.StatusRange{From: n * 100, To: n*100 + 99}, nil
	}
	if text == "" {
		return deadletter.StatusRange{}, nil
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < 0 || n > 999:
		return deadletter.StatusRange{}, wrong
	case n == 0:
		return noAnswer, nil
	}
	return deadletter.StatusRange{From: n, To: n}, nil
}
