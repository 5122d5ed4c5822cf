package program

import (
	"encoding/json"
	"strings"
	"time"

	"weir/cmd/weir/internal/serve/admin"
	"weir/dispatcher/schedule"
)

// SeeNotBefore checks what weir shows of a key whose jobs wait for their earliest time.
func (c CLI) SeeNotBefore(due time.Time) {
	c.T.Helper()
	var shown admin.KeyShown
	said, code := c.Run("show", "pay", "k", "--json")
	if err := json.Unmarshal([]byte(said), &shown); err != nil || code != 0 {
		c.T.Fatalf("%d %s", code, said)
	}
	if shown.Waits.For != schedule.WaitNotBefore || shown.Waits.Until == nil || shown.Waits.Until.Sub(due).Abs() > time.Millisecond || shown.WaitMS > 1000 {
		c.T.Errorf("the key waits for %+v, a job that came now %d ms", shown.Waits, shown.WaitMS)
	}
	var order []string
	for _, j := range shown.Next {
		order = append(order, j.Job+" "+string(j.Phase))
	}
	if got := strings.Join(order, ", "); got != "second not_before, third not_before, gone not_before, year not_before" {
		c.T.Errorf("shown: %s", got)
	}
	if said, _ := c.Run("show", "pay", "k"); !strings.Contains(said, "the time that its jobs asked for until") {
		c.T.Errorf("shown: %s", said)
	}
}
