package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ParseAnswer parses an answer of the intake. It returns a refusal as a *Refusal, and the answer of a foreign stream as
// a *ForeignAnswer.
func ParseAnswer(data []byte) (Receipt, error) {
	if receipt, ok := plainReceipt(data); ok {
		return judged(receipt)
	}
	return decodeAnswer(data)
}

// decodeAnswer is ParseAnswer for any spelling.
func decodeAnswer(data []byte) (Receipt, error) {
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
	receipt.Receipt.ETA = receipt.ETA
	return judged(receipt.Receipt)
}

// judged returns the receipt, or an error if something other than weir must have sent it.
func judged(r Receipt) (Receipt, error) {
	if r.Stream != "" && (r.Job == "" || !strings.HasPrefix(r.Stream, queuePrefix)) {
		return Receipt{}, &ForeignAnswer{Stream: r.Stream}
	}
	if r.Seq == 0 && !r.Duplicate || r.Job == "" {
		return Receipt{}, errors.New("what answered is not weir: its answer is no receipt")
	}
	return r, nil
}

// queuePrefix begins the names of the streams that store jobs, and so every stream name in a receipt.
const queuePrefix = "WEIR_"

// ForeignAnswer is the error that reports that another stream captures weir's subjects and answered in weir's place.
// Its acknowledgement is not a receipt. Either no weir runs there, or weir's own answer came too late. The job may have
// been accepted.
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

// ourCode reports whether an error code is weir's. JetStream's own codes are lower numbers.
func ourCode(code int) bool {
	switch Code(code) {
	case Invalid, UnknownAPI, TooLarge, Throttled, Unavailable:
		return true
	case Unsure:
	}
	return false
}
