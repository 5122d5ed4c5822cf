package weirtest

import (
	"encoding/json"
	"fmt"
	"strings"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/serve/limitstate"
)

// BudgetEvents returns the stored budget events of an api in order. Each is a text with its limit, threshold and
// amount.
func (r *Rig) BudgetEvents(api string) (told []string) {
	r.T.Helper()
	stream, err := r.JS.Stream(r.T.Context(), "WEIR_EVENTS")
	if err != nil {
		r.T.Fatal(err)
	}
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		msg, err := stream.GetMsg(r.T.Context(), seq)
		if err != nil {
			r.T.Fatal(err)
		}
		if !strings.HasPrefix(msg.Subject, "weir.events.budget."+api+".") {
			continue
		}
		var e struct {
			Type, Source string
			Data         limitstate.BudgetData
		}
		if err := json.Unmarshal(msg.Data, &e); err != nil || e.Type != "weir.budget.v1" || e.Source != "/weir/"+api {
			r.T.Fatalf("%s: %v", msg.Data, err)
		}
		spent, _ := config.ParseMoney(e.Data.Counted)
		budget, _ := config.ParseMoney(e.Data.Budget)
		if percent := int64(spent) * 100 / int64(budget); percent < int64(min(e.Data.Percent, 99)) {
			r.T.Errorf("%d %% told at %d %%: %s", e.Data.Percent, percent, msg.Data)
		}
		told = append(told, fmt.Sprintf("%s %d of %s", e.Data.Limit, e.Data.Percent, e.Data.Budget))
	}
	return told
}
