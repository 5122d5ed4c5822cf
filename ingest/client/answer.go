package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ParseAnswer parses an answer of the intake. A refusal is returned as a *Refusal, a stream's answer in the intake's
// place as a *ForeignAnswer.
func ParseAnswer(data []byte) (Receipt, error) {
	var receipt struct {
		Receipt
		ETA time.Time `json:"eta"`
	}
	var refusal struct {
		Error *json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(data, &refusal); err != nil {
		return Receipt{}, fmt.Errorf("weir's answer cannot be read: %w", err)
	}
	if refusal.Error != nil {
		var w refusalAnswer
		if err := json.Unmarshal(data, &w); err != nil {
			return Receipt{}, fmt.Errorf("weir's answer cannot be read: %w", err)
		}
		if !ourCode(w.Error.ErrCode) {
			return Receipt{}, &ForeignAnswer{Stream: w.Stream, Refused: clip(w.Error.Description)}
		}
		return Receipt{}, &Refusal{
			Code: Code(w.Error.ErrCode), Description: w.Error.Description, Job: w.Job, LetterSeq: w.DeadLetterSeq,
			RetryAfter: time.Duration(w.RetryAfterMS) * time.Millisecond,
		}
	}
	if err := json.Unmarshal(data, &receipt); err != nil {
		return Receipt{}, fmt.Errorf("weir's answer cannot be read: %w", err)
	}
	if receipt.Stream != "" && (receipt.Job == "" || !strings.HasPrefix(receipt.Stream, queuePrefix)) {
		return Receipt{}, &ForeignAnswer{Stream: receipt.Stream}
	}
	if receipt.Seq == 0 && !receipt.Duplicate || receipt.Job == "" {
		return Receipt{}, errors.New("what answered is not weir: its answer is no receipt")
	}
	receipt.Receipt.ETA = receipt.ETA
	return receipt.Receipt, nil
}

// queuePrefix begins the names of the streams that store jobs, and so of every stream that a receipt names.
const queuePrefix = "WEIR_"

// ForeignAnswer is an error: a stream that captures weir's subjects answered in weir's place. Its acknowledgement is
// not a receipt. No weir runs there, or weir's own answer came too late to be read. Whether weir accepted the job
// is unknown.
type ForeignAnswer struct {
	Stream  string // the stream that answered, or empty if the answer does not say
	Refused string // why the stream refused the job, or empty if it acknowledged the job
}

func (f *ForeignAnswer) Error() string {
	who := "something that is not weir"
	if f.Stream != "" {
		who = "stream " + clip(f.Stream)
	}
	what := "acknowledged the job"
	if f.Refused != "" {
		what = "refused the job (" + f.Refused + ")"
	}
	return fmt.Sprintf("%s %s in weir's place: it must not take %s>", who, what, SubjectPrefix)
}

// ourCode reports whether an error code is one of weir's. JetStream's own codes are all lower.
func ourCode(code int) bool {
	switch Code(code) {
	case Invalid, UnknownAPI, TooLarge, Throttled, Unavailable:
		return true
	case Unsure:
	}
	return false
}
