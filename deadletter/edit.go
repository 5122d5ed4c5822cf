package deadletter

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// HeaderEdited marks a job that was redriven with changes. It holds the number of the changed letter and the names of
// what was changed. The job keeps it in later letters and redrives.
const HeaderEdited = "Weir-Dead-Edited"

// Edit has the changes that a redrive makes to its one letter.
type Edit struct {
	Body     []byte              `json:"-"`                  // a task stores it apart: Tasks.Start
	SetBody  bool                `json:"set_body,omitempty"` // the body is Body, which may be empty
	Set      map[string][]string `json:"set,omitempty"`      // headers, with all their values
	Unset    []string            `json:"unset,omitempty"`    // headers
	EditedBy string              `json:"edited_by,omitempty"`
}

// Check refuses changes to headers that weir writes, and to the job's identity.
func (e *Edit) Check() error {
	if !e.SetBody && len(e.Set) == 0 && len(e.Unset) == 0 {
		return errors.New("nothing is edited: name a body, or a header")
	}
	for _, name := range append(slices.Sorted(maps.Keys(e.Set)), e.Unset...) {
		lower := strings.ToLower(name)
		switch {
		case strings.HasPrefix(lower, "nats-"), strings.HasPrefix(lower, "weir-job-"), strings.HasPrefix(lower, "weir-dead-"), OfAnswer(name),
			lower == "weir-redrives", lower == "weir-api", lower == "weir-key":
			return fmt.Errorf("header %s is weir's own, or names the job: it cannot be edited", name)
		}
	}
	return nil
}

// CheckKey refuses an edit that changes the key of a letter's job. If the job has no key, an edit may add one.
func (e *Edit) CheckKey(k *Kept, terms Terms) error {
	if terms.keyInSubject() || k.Key == "" {
		return nil
	}
	msg := k.resubmission(terms, KeepDeadline, time.Now())
	e.apply(msg, k.Seq)
	key, err := terms.Key.Read(msg.Header, msg.Data)
	if err != nil {
		return fmt.Errorf("the edited job names no key: %w", err)
	}
	if key != k.Key {
		return fmt.Errorf("the edited job has the key %q (%s), and the letter has %q: an edit cannot change the key", key, terms.Key, k.Key)
	}
	return nil
}

// apply changes the message of a redriven job and adds HeaderEdited. seq is the letter's number.
func (e *Edit) apply(msg *nats.Msg, seq uint64) {
	var what []string
	if e.SetBody {
		msg.Data, what = e.Body, append(what, "body")
	}
	for _, name := range append(slices.Clone(e.Unset), slices.Sorted(maps.Keys(e.Set))...) {
		for old := range msg.Header {
			if strings.EqualFold(old, name) {
				delete(msg.Header, old)
			}
		}
		if values := e.Set[name]; len(values) > 0 {
			msg.Header[name] = values
		}
		what = append(what, name)
	}
	slices.Sort(what)
	msg.Header[HeaderEdited] = []string{cleanDetail(strconv.FormatUint(seq, 10) + " " + strings.Join(slices.Compact(what), " "))}
}

// editedFrom reports whether a job was redriven with changes from the letter with this number.
func editedFrom(h nats.Header, seq uint64) bool {
	of, _, _ := strings.Cut(h.Get(HeaderEdited), " ")
	return of == strconv.FormatUint(seq, 10)
}
