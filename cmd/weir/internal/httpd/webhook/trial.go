package webhook

import (
	"context"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/deadletter"

	"github.com/google/uuid"
)

// testEvent is the type of a message that only shows that a destination works. No stream stores such a message.
const testEvent deadletter.EventType = "test"

// Test posts a message to a destination once, in its format. It returns why the receiver has not accepted it.
func (s *Senders) Test(ctx context.Context, to *config.Destination, who string) error {
	now, id := time.Now().UTC(), uuid.Must(uuid.NewV7()).String()
	e := event{id: id, kind: testEvent, at: now, data: map[string]any{"who": who, "destination": to.Name}}
	e.json = mustMarshal(map[string]any{
		"specversion": "1.0", "id": id, "source": "/weir/", "type": "weir.test.v1", "time": now.Format(time.RFC3339Nano),
		"datacontenttype": "application/json", "data": e.data,
	})
	if no := post(ctx, s.client, to, render(to, []*group{{event: e, newest: e, events: 1}})); no != nil {
		return no
	}
	return nil
}
