package dispatcher

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
)

// TestRecordIsSmall: the ledger keeps the beginning of an answer, a letter more.
func TestRecordIsSmall(t *testing.T) {
	r := httpcall.Response{Status: 500, Header: http.Header{}, Body: []byte(strings.Repeat("x", 20<<10))}
	answer := httpcall.AnswerOf(&httpcall.API{}, r)
	if len(answer.Body) != deadletter.MaxAnswer || !answer.Cut {
		t.Errorf("a letter keeps %d bytes, cut: %v", len(answer.Body), answer.Cut)
	}
	c := &ledger.Record{Answer: answer}
	var stored ledger.Record
	if err := json.Unmarshal(c.Message().Data, &stored); err != nil {
		t.Fatal(err)
	}
	if len(stored.Answer.Body) != ledger.RecordedAnswer || !stored.Answer.Cut || len(c.Answer.Body) != deadletter.MaxAnswer {
		t.Errorf("the ledger keeps %d bytes", len(stored.Answer.Body))
	}
}
