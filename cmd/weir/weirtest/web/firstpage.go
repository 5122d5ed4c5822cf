package web

import (
	"net/http"
	"slices"
	"time"
)

type FirstPage struct {
	Path  string
	Tries int
	Part  float64
}

// AskFor returns the shortest time in which weir answers with a page.
func (c Client) AskFor(p FirstPage) time.Duration {
	c.T.Helper()
	return LeastOf(p.Tries, func() {
		if status, body := c.Say("GET", p.Path, "", ""); status != http.StatusOK {
			c.T.Fatalf("%s: %d %s", p.Path, status, body)
		}
	})
}

// LeastOf runs what n times and returns the shortest duration, because other work of the machine disturbs it least.
func LeastOf(n int, what func()) time.Duration {
	var took []time.Duration
	for range n {
		began := time.Now()
		what()
		took = append(took, time.Since(began))
	}
	return slices.Min(took)
}
