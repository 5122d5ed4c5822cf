package deadletter

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// The headers of a letter that hold the api's last answer.
const (
	HeaderAnswer            = "Weir-Answer"              // base64 of the body, or of its beginning
	HeaderAnswerStatus      = "Weir-Answer-Status"       // of the answer
	HeaderAnswerContentType = "Weir-Answer-Content-Type" // as the api sent it
	HeaderAnswerCut         = "Weir-Answer-Cut"          // answerCut, or absent
)

// answerCut marks an answer whose body was longer than a letter keeps.
const answerCut = "true"

// Bounds of the answer in a letter, in bytes. JetStream stores at most 64 KiB of headers, and the job's own may take
// most of it.
const (
	MaxAnswer            = 16 << 10
	maxAnswerContentType = 256
	maxLetterHeader      = 62 << 10
)

// Answer is the api's answer to the last call that it answered.
type Answer struct {
	Status      int    `json:"status"`
	ContentType string `json:"content_type,omitempty"`
	Body        []byte `json:"body,omitempty"`
	Cut         bool   `json:"cut,omitempty"` // the body was longer
}

// Clip returns the answer with at most this many bytes of its body. Nil stays nil.
func (a *Answer) Clip(most int) *Answer {
	if a == nil || len(a.Body) <= most {
		return a
	}
	c := *a
	c.Body, c.Cut = a.Body[:max(most, 0)], true
	return &c
}

// addTo adds the answer to a letter's header. It cuts the body to what fits.
func (a *Answer) addTo(h nats.Header) {
	if a == nil {
		return
	}
	room := maxLetterHeader
	for name, values := range h {
		for _, v := range values {
			room -= len(name) + len(v) + len(": \r\n")
		}
	}
	a = a.Clip(min(MaxAnswer, base64.StdEncoding.DecodedLen(max(room-maxAnswerContentType, 0))))
	h[HeaderAnswerStatus] = []string{strconv.Itoa(a.Status)}
	h[HeaderAnswer] = []string{base64.StdEncoding.EncodeToString(a.Body)}
	if t := contentType(a.ContentType); t != "" {
		h[HeaderAnswerContentType] = []string{t}
	}
	if a.Cut {
		h[HeaderAnswerCut] = []string{answerCut}
	}
}

// contentType returns an api's content type without characters that a header cannot carry, and not too long.
func contentType(text string) string {
	text = strings.TrimSpace(strings.ToValidUTF8(cleanDetail(text), ""))
	if len(text) > maxAnswerContentType {
		text = strings.TrimSpace(strings.ToValidUTF8(text[:maxAnswerContentType], ""))
	}
	return text
}

// readAnswer reads what addTo wrote. It returns nil if the headers have no answer.
func readAnswer(h nats.Header) *Answer {
	status, err := strconv.Atoi(h.Get(HeaderAnswerStatus))
	if err != nil || status < 1 || status > 999 {
		return nil
	}
	body, err := base64.StdEncoding.DecodeString(h.Get(HeaderAnswer))
	if err != nil {
		body = nil
	}
	return &Answer{Status: status, ContentType: h.Get(HeaderAnswerContentType), Body: body, Cut: err != nil || h.Get(HeaderAnswerCut) != ""}
}

// OfAnswer reports whether a header, in any case, holds part of an api's answer.
func OfAnswer(name string) bool {
	lower := strings.ToLower(name)
	return lower == "weir-answer" || strings.HasPrefix(lower, "weir-answer-")
}
