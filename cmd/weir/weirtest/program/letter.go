package program

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// Answered is an api's answer, as a letter stores it.
type Answered struct {
	Status, ContentType, Body string
	Cut                       bool
}

// CheckShown compares the answer that `weir dead show` prints with want.
func (c CLI) CheckShown(t *testing.T, seq uint64, want Answered) {
	t.Helper()
	text, _ := c.Run("dead", "show", fmt.Sprint(seq))
	out, code := c.Run("dead", "show", fmt.Sprint(seq), "--json")
	var shown struct {
		Headers map[string]any
		Answer  *struct {
			Status         int
			ContentType    string `json:"content_type"`
			Body, Encoding string
			Cut            bool
		}
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil || code != 0 {
		t.Fatalf("dead show: %d, %v", code, err)
	}
	for name := range shown.Headers {
		if strings.HasPrefix(name, "Weir-Answer") {
			t.Errorf("%s is shown as a header of the job", name)
		}
	}
	if want == (Answered{}) {
		if shown.Answer != nil {
			t.Errorf("an answer is shown where there was none: %+v", shown.Answer)
		}
		return
	}
	if shown.Answer == nil {
		t.Fatal("no answer is shown")
	}
	body := shown.Answer.Body
	if shown.Answer.Encoding == "base64" {
		data, err := base64.StdEncoding.DecodeString(body)
		if err != nil {
			t.Error(err)
		}
		body = string(data)
	} else if !strings.Contains(text, body) {
		t.Errorf("people are not shown %.100q", body)
	}
	if body != want.Body || fmt.Sprint(shown.Answer.Status) != want.Status || shown.Answer.Cut != want.Cut {
		t.Errorf("shown is %.200s", out)
	}
}

func (a Answered) String() string {
	return fmt.Sprintf("%s %s, %d bytes, cut %v: %.100q", a.Status, a.ContentType, len(a.Body), a.Cut, a.Body)
}
