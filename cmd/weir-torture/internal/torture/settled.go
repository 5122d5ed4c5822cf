package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/cmd/internal/fakeapi"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// The limit in tokens. Its burst is large enough for the highest estimate.
const (
	tokensName  = "tokens"
	tokensCount = 2700 // less than the usual load takes, so that jobs wait for the limit
	tokensPer   = 2 * time.Second
	tokensYAML  = "{name: tokens, rate: 2700/2s, burst: 400, cost: {from: header:Weir-Cost, settle: usage:total_tokens}}"

	misjudged = 5 // estimates are so many times too high, or too low
)

// loneResult is the detail of a record that recovery made from a result. Such a record has what the call took if the
// flight recorder noted that, else what it was estimated to take.
const loneResult = "the worker died after its result was stored"

// settledYAML has the prices of the fake language model (fakeapi.InputPrice, fakeapi.OutputPrice).
const settledYAML = `vendor: openai
    price:
      - {each: 3, per: 1000000, from: header:X-Input, settle: usage:input_tokens}
      - {each: 15, per: 1000000, from: header:X-Output, settle: usage:output_tokens}`

// tokens are what the call of a job takes, and what its producer estimates.
type tokens struct{ in, out, guessedIn, guessedOut int64 }

// tokensOf returns the tokens of the nth job of a key. Estimates are too high and too low in turn.
func tokensOf(n int) tokens {
	t := tokens{in: int64(10 + n%21), out: int64(10 + n*7%21)}
	if n%2 == 0 {
		t.guessedIn, t.guessedOut = t.in*misjudged, t.out*misjudged
	} else {
		t.guessedIn, t.guessedOut = t.in/misjudged, t.out/misjudged
	}
	return t
}

// describe adds the tokens to a job: to the body what the api takes, and to headers what the producer estimates.
func (t *tokens) describe(msg *nats.Msg, id string) {
	msg.Data = fmt.Appendf(nil, `{"id":%q,"metadata":{"input_tokens":"%d","output_tokens":"%d"}}`, id, t.in, t.out)
	for name, n := range map[string]int64{"Weir-Cost": t.guessedIn + t.guessedOut, "X-Input": t.guessedIn, "X-Output": t.guessedOut} {
		msg.Header[name] = []string{strconv.FormatInt(n, 10)}
	}
}

// charge is what the record of one call says of the limit in tokens.
type charge struct {
	outcome  string
	took     int64
	reserved int64 // less than took if the call took more
	lone     bool  // recovery made the record from a result
	held     bool  // the limit kept the job waiting longest
}

// charges are the charges of each job, by its id.
type charges map[string][]charge

// bill is the spending that weir reports, in millionths of the currency.
type bill struct{ spent, inDoubt int64 }

// readCharges reads weir's ledger.
func readCharges(ctx context.Context, js jetstream.JetStream) (charges, error) {
	all := charges{}
	var wrong error
	err := readStream(ctx, js, ledger.CallsStream, ">", func(m jetstream.Msg) {
		var c ledger.Record
		if err := json.Unmarshal(m.Data(), &c); err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("read weir's ledger: %q: %w", m.Data(), err))
			return
		}
		i := slices.Index(c.Limits, tokensName)
		if i < 0 || i >= len(c.Costs) || c.Polled || c.Inquiry != "" {
			return
		}
		one := charge{c.Outcome, c.Costs[i], c.Costs[i], c.Detail == loneResult, c.HeldLimit == tokensName}
		if i < len(c.Reserved) {
			one.reserved = c.Reserved[i]
		}
		if c.Billed == deadletter.NotBilled {
			one.took, one.reserved = 0, 0
		}
		all[c.Job] = append(all[c.Job], one)
	})
	return all, errors.Join(err, wrong)
}

// askSpend runs `weir spend`.
func (s *stage) askSpend(ctx context.Context) (b bill, err error) {
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
	for text, n := range map[*string]*int64{&says.Spent: &b.spent, &says.InDoubt: &b.inDoubt} {
		var ok bool
		if *n, ok = ledger.ParseMoney(*text); !ok {
			return b, fmt.Errorf("weir spend: %q is no sum of money", *text)
		}
	}
	return b, nil
}

// judgeSettled checks by the api's ledger that weir has charged done jobs what they took, that no window exceeds the
// limit by more than what calls took beyond their reservations, and that weir spend equals the bill for done jobs. A
// job whose outcome is unknown counts in windows with what weir has charged for it, and its bill must be in doubt.
func (e *Evidence) judgeSettled(r *Report) {
	if !e.Options.Settled {
		return
	}
	for _, job := range e.Charges {
		for _, c := range job {
			if c.held {
				r.TokensHeld++
			}
		}
	}
	r.ReportedSpent, r.ReportedInDoubt = e.Bill.spent, e.Bill.inDoubt
	known := slices.Clone(e.Arrivals) // with the tokens that were reserved, if a call took more
	for i := range known {
		a := &known[i]
		if !a.Billed {
			continue
		}
		job := jobOf(a)
		if e.Ends.Results[job] > 0 {
			r.BilledDone += a.Charge
		} else {
			r.BilledInDoubt += a.Charge
		}
		took := a.Used.Input + a.Used.Output
		reserved := e.judgeCharge(r, job, took)
		if reserved < took {
			r.Exceeding++
		}
		a.Used = fakeapi.Tokens{Input: min(took, reserved)}
	}
	limit := fakeapi.UseLimit{
		Name: tokensName, Count: tokensCount, Per: tokensPer, Scope: fakeapi.AllKeys, Weigh: fakeapi.Weigh{Input: 1, Output: 1},
	}
	all, within := fakeapi.Windows(e.Arrivals, limit)[0], fakeapi.Windows(known, limit)[0]
	limit.Per = max(1, tokensPer-e.stampError())
	certain := fakeapi.Windows(known, limit)[0]
	r.TokensFullest, r.TokensByTold = all.Fullest, all.Over-within.Over
	r.TokensOver, r.TokensDoubtful = certain.Over, within.Over-certain.Over
	if certain.Over > 0 {
		r.example("over the limit in tokens", fmt.Sprintf("%+v", certain))
	}
}

// judgeCharge judges what weir has charged for a billed call, and returns how many tokens the call had reserved.
func (e *Evidence) judgeCharge(r *Report, job string, took int64) (reserved int64) {
	reserved = took
	for _, c := range e.Charges[job] {
		if c.reserved > 0 {
			reserved = min(reserved, c.reserved)
		}
	}
	if e.Ends.Results[job] == 0 {
		return reserved
	}
	i := slices.IndexFunc(e.Charges[job], func(c charge) bool { return c.outcome == ledger.Done })
	r.Settled++
	switch {
	case i < 0:
		r.SettledWrong++
		r.example("no record of a job that is done", job)
	case e.Charges[job][i].took == took:
	case e.Charges[job][i].lone && !e.Options.namesUnknown():
		r.SettledUntold++
	default:
		r.SettledWrong++
		r.example("charged other tokens than it took", fmt.Sprintf("%s: %d, not %d", job, e.Charges[job][i].took, took))
	}
	return reserved
}

// addSettled adds the findings on tokens and on the bill.
func (r *Report) addSettled(add func(name string, bad int, format string, args ...any)) {
	add("settled", r.SettledWrong+r.TokensOver, "%d calls charged what they took, %d not, %d by recovery without their notes; "+
		"%d took more than reserved, and made %d windows exceed the limit; %d windows exceed it without that, and %d perhaps; "+
		"the fullest has %d tokens of %d; the limit held %d calls",
		r.Settled-r.SettledWrong-r.SettledUntold, r.SettledWrong, r.SettledUntold,
		r.Exceeding, r.TokensByTold, r.TokensOver, r.TokensDoubtful,
		r.TokensFullest, tokensCount, r.TokensHeld)
	wrong := 0
	if r.ReportedSpent != r.BilledDone || r.BilledInDoubt > 0 && r.ReportedInDoubt == 0 {
		wrong = 1
	}
	add("the bill", wrong, "%.6f for jobs that are done, and weir spend says %.6f; %.6f for others, and weir has %.6f in doubt",
		units(r.BilledDone), units(r.ReportedSpent), units(r.BilledInDoubt), units(r.ReportedInDoubt))
}

// units returns millionths of the currency in its units.
func units(millionths int64) float64 { return float64(millionths) / 1e6 }
