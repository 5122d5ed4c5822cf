package ingest

import "fmt"

func refuse(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Description: fmt.Sprintf(format, args...)}
}
