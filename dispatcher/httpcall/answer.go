package httpcall

import (
	"bytes"

	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// AnswerOf returns the part of a response that a letter keeps, nil if there was no answer. If the api has sent back
// secrets of weir, AnswerOf removes them.
func AnswerOf(api *API, r Response) *deadletter.Answer {
	if r.Status == 0 {
		return nil
	}
	secrets := api.secrets()
	a := &deadletter.Answer{
		Status: r.Status, ContentType: ledger.Clip(string(withoutSecrets([]byte(r.Header.Get("Content-Type")), secrets)), ledger.MaxContentType),
		Body: withoutSecrets(r.Body, secrets), Cut: r.More || r.Cut,
	}
	return a.Clip(deadletter.MaxAnswer)
}

func (a *API) secrets() []string {
	if a.Secrets == nil {
		return nil
	}
	return a.Secrets()
}

// leastSecret is the shortest value that counts as a secret: a shorter one occurs in any text by chance.
const leastSecret = 6

// withoutSecrets returns a body in which *** replaces each secret. If the body ends with the first part of a secret,
// *** replaces that part too.
func withoutSecrets(body []byte, secrets []string) []byte {
	for _, secret := range secrets {
		if len(secret) < leastSecret {
			continue
		}
		body = bytes.ReplaceAll(body, []byte(secret), []byte("***"))
		for n := min(len(secret)-1, len(body)); n >= leastSecret; n-- {
			if bytes.HasSuffix(body, []byte(secret[:n])) {
				body = append(bytes.Clone(body[:len(body)-n]), "***"...)
				break
			}
		}
	}
	return body
}
