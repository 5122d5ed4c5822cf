package webhook

import (
	"context"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/deadletter"

	"github.com/google/uuid"
)

// testEvent is the type of a test message to a destination. No stream stores such a message.
const testEvent deadletter.EventType = "test"

// Test posts one test message to a destination, in its format. It returns why the receiver did not accept it.
func (s *Senders) Test(ctx context.Context, to *config.Destination, who string) error {
	now, id := time.Now().UTC(), uuid.Must(uuid.NewV7()).String()
	e := event{id: id, kind: testEvent, at: now, data: map[string]any{"who": who, "destination": to.Name}}
	e.json = mustMarshal(map[string]any{
		"specversion": "1.0", "id": id, "source": "/weir/", "type": "weir.test.v1", "time": now.Format(time.RFC3339Nano),
		"datacontenttype": "application/json", "data": e.data,
	})
	if no := post(ctx, s.client, &to.Receiver, render(to, []*group{{event: e, newest: e, events: 1}})); no != nil {
		return no
	}
	return nil
}

// TestCallback posts one test message to an api's callback. It returns why the receiver did not accept it.
func (s *Senders) TestCallback(ctx context.Context, api string, to *config.Callback, who string) error {
	body := mustMarshal(envelope{"test", time.Now().UTC(), map[string]string{"api": api, "who": who}})
	m := message{id: uuid.Must(uuid.NewV7()).String(), kind: "application/json", body: body}
	if no := post(ctx, s.callbacks, &to.Receiver, m); no != nil {
		return no
	}
	return nil
}
