package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/plan"
	"weir/deadletter"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go/jetstream"
)

// loneResult is the detail of a record that recovery made from a result. Such a record has what the call took if the
// flight recorder noted that, else what it was estimated to take.
const loneResult = "the worker died after its result was stored"

// readCharges reads weir's ledger.
func readCharges(ctx context.Context, js jetstream.JetStream) (judge.Charges, error) {
	all := judge.Charges{}
	var wrong error
	err := readStream(ctx, js, ledger.CallsStream, ">", func(m jetstream.Msg) {
		var c ledger.Record
		if err := json.Unmarshal(m.Data(), &c); err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("read weir's ledger: %q: %w", m.Data(), err))
			return
		}
		i := slices.Index(c.Limits, plan.TokensName)
		if i < 0 || i >= len(c.Costs) || c.Polled || c.Inquiry != "" {
			return
		}
		one := judge.Charge{Outcome: c.Outcome, Took: c.Costs[i], Reserved: c.Costs[i], Lone: c.Detail == loneResult, Held: c.HeldLimit == plan.TokensName}
		if i < len(c.Reserved) {
			one.Reserved = c.Reserved[i]
		}
		if c.Billed == deadletter.NotBilled {
			one.Took, one.Reserved = 0, 0
		}
		all[c.Job] = append(all[c.Job], one)
	})
	return all, errors.Join(err, wrong)
}

// askSpend runs `weir spend`.
func (s *stage) askSpend(ctx context.Context) (b judge.Bill, err error) {
	p, err := s.programs.start(program{
		name: "spend", args: []string{"spend", "--json", "--since", "1d"}, env: s.servers.commandEnv(), mark: `"in_doubt"`,
	})
	if err != nil {
		return b, err
	}
	if err := p.awaitReady(ctx, appliesWithin); err != nil {
		p.Kill()
		return b, err
	}
	var says struct {
		Spent   string `json:"spent"`
		InDoubt string `json:"in_doubt"`
	}
	if err := json.Unmarshal([]byte(p.marked), &says); err != nil {
		return b, fmt.Errorf("weir spend: %q: %w", p.marked, err)
	}
	for text, n := range map[*string]*int64{&says.Spent: &b.Spent, &says.InDoubt: &b.InDoubt} {
		var ok bool
		if *n, ok = ledger.ParseMoney(*text); !ok {
			return b, fmt.Errorf("weir spend: %q is no sum of money", *text)
		}
	}
	return b, nil
}
