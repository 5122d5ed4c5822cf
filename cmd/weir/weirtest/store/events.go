package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/deadletter"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// CheckDeadEvents waits until a key has want events about its letters. It fails if there are more, or if the last
// event's reason is not unknown. weir stores an event after the letter.
func (s Store) CheckDeadEvents(key string, want int) {
	s.T.Helper()
	stream, err := s.JS.Stream(s.T.Context(), "WEIR_EVENTS")
	if err != nil {
		s.T.Fatal(err)
	}
	n := uint64(0)
	s.Eventually("the events of the letters of "+key, func() bool {
		info, err := stream.Info(s.T.Context(), jetstream.WithSubjectFilter("weir.events.dead.pay."+key))
		if err != nil {
			s.T.Fatal(err)
		}
		n = info.State.Subjects["weir.events.dead.pay."+key]
		return n >= uint64(want)
	})
	if n != uint64(want) {
		s.T.Errorf("key %s has %d events, want %d", key, n, want)
	}
	msg, err := stream.GetLastMsgForSubject(s.T.Context(), "weir.events.dead.pay."+key)
	if err != nil {
		s.T.Fatal(err)
	}
	var event struct{ Data struct{ Reason string } }
	if err := json.Unmarshal(msg.Data, &event); err != nil || event.Data.Reason != "unknown" {
		s.T.Errorf("the event says %s", msg.Data)
	}
}

// HoldEvents waits for hold and resume events, and fails unless their subjects are want.
func (s Store) HoldEvents(want ...string) {
	s.T.Helper()
	of := func() (subjects []string) {
		for _, m := range append(s.Stored("WEIR_EVENTS", "weir.events.held.pay.*"), s.Stored("WEIR_EVENTS", "weir.events.resumed.pay.*")...) {
			subjects = append(subjects, m.Subject)
		}
		return subjects
	}
	s.Eventually(fmt.Sprint("the events ", want), func() bool { return len(of()) >= len(want) })
	if got := of(); !slices.Equal(got, want) {
		s.T.Errorf("the events of holds are %v, want %v", got, want)
	}
}

// BudgetEvents returns the stored budget events of an api in order. Each is a text with its limit, threshold and
// amount.
func (s Store) BudgetEvents(api string) (told []string) {
	s.T.Helper()
	stream, err := s.JS.Stream(s.T.Context(), "WEIR_EVENTS")
	if err != nil {
		s.T.Fatal(err)
	}
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		msg, err := stream.GetMsg(s.T.Context(), seq)
		if err != nil {
			s.T.Fatal(err)
		}
		if !strings.HasPrefix(msg.Subject, "weir.events.budget."+api+".") {
			continue
		}
		var e struct {
			Type, Source string
			Data         limitstate.BudgetData
		}
		if err := json.Unmarshal(msg.Data, &e); err != nil || e.Type != "weir.budget.v1" || e.Source != "/weir/"+api {
			s.T.Fatalf("%s: %v", msg.Data, err)
		}
		spent, _ := grammar.ParseMoney(e.Data.Counted)
		budget, _ := grammar.ParseMoney(e.Data.Budget)
		if percent := int64(spent) * 100 / int64(budget); percent < int64(min(e.Data.Percent, 99)) {
			s.T.Errorf("%d %% told at %d %%: %s", e.Data.Percent, percent, msg.Data)
		}
		told = append(told, fmt.Sprintf("%s %d of %s", e.Data.Limit, e.Data.Percent, e.Data.Budget))
	}
	return told
}

// ConfigEvents returns the config events stored so far.
func (s Store) ConfigEvents() []admin.ConfigChange {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.T.Context(), await.Patience)
	defer cancel()
	stream, err := s.JS.Stream(ctx, "WEIR_EVENTS")
	if err != nil {
		s.T.Fatal(err)
	}
	var told []admin.ConfigChange
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		msg, err := stream.GetMsg(ctx, seq)
		if err != nil || !strings.HasPrefix(msg.Subject, "weir.events.config.") {
			continue
		}
		var event struct {
			Type, Source string
			Data         admin.ConfigChange
		}
		if err := json.Unmarshal(msg.Data, &event); err != nil || event.Type != "weir.config.v1" {
			s.T.Fatalf("%s: %v", msg.Data, err)
		}
		told = append(told, event.Data)
	}
	return told
}

// ThrottledEvents returns the number of refusals in each throttled event of a key, by job.
func (s Store) ThrottledEvents() map[string][]int {
	s.T.Helper()
	events := map[string][]int{}
	for _, msg := range s.Stored(deadletter.EventsStream, "weir.events.throttled.full.k") {
		var e struct {
			Data struct {
				Job      string
				Refusals int
			}
		}
		if err := json.Unmarshal(msg.Data, &e); err != nil {
			s.T.Fatal(err)
		}
		events[e.Data.Job] = append(events[e.Data.Job], e.Data.Refusals)
	}
	return events
}
