package judge

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/bucket"
	"weir/cmd/weir-torture/internal/plan"
)

// Recovery is the distribution of recovery times over all faults of a kind.
type Recovery struct {
	Of  int           `json:"of"`
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
	Max time.Duration `json:"max_ns"`
}

// String describes the distribution.
func (r Recovery) String() string {
	return fmt.Sprintf("%.1f, %.1f, %.1f s", r.P50.Seconds(), r.P99.Seconds(), r.Max.Seconds())
}

// Finding is one promise, with the verdict on it.
type Finding struct {
	Outcome bucket.Outcome `json:"outcome"`
	Name    string         `json:"name"`
	Text    string         `json:"text"`
}

// Report is the verdict in figures.
type Report struct {
	Findings   []Finding     `json:"findings"`
	Command    string        `json:"command"`
	Seed       uint64        `json:"seed"`
	Server     plan.Server   `json:"server"`
	Idempotent bool          `json:"idempotent"`
	Took       time.Duration `json:"took_ns"`

	Accepted             int `json:"accepted"`
	Called               int `json:"called"` // accepted jobs that reached the api
	Calls                int `json:"calls"`
	PushedBack           int `json:"pushed_back"`
	Results              int `json:"results"`
	Waiting              int `json:"waiting"`
	Lost                 int `json:"lost"`
	Unread               int `json:"unread,omitempty"` // streams that do not deliver all messages that they count
	EndedTwice           int `json:"ended_twice"`
	Unasked              int `json:"unasked"` // called jobs that were refused, or never submitted
	CalledTwice          int `json:"called_twice"`
	Repeats              int `json:"repeats"` // further calls of jobs that were called more than once
	BilledTwice          int `json:"billed_twice"`
	OutOfOrder           int `json:"out_of_order"`
	Overtaken            int `json:"overtaken"` // by less than the jitter, or because the network lost a call
	Passed               int `json:"passed"`    // first calls that a more urgent, later job of their key has preceded
	OverRate             int `json:"over_rate_windows"`
	Doubtful             int `json:"doubtful_windows"`
	Unknown              int `json:"unknown"`
	UnknownCalled        int `json:"unknown_called"`
	UnknownNeverSeen     int `json:"unknown_never_seen"` // the api's ledger has no call of these jobs
	UnknownExplained     int `json:"unknown_explained"`
	UnknownUnderWay      int `json:"unknown_under_way"` // their calls were under way when weir was killed
	UnknownAnswered      int `json:"unknown_answered"`  // of these, answered just before; weir may not have noted it
	UnknownUnnamed       int `json:"unknown_unnamed"`   // parked after a kill -9 although no call was under way
	OthersAnswers        int `json:"others_answers"`    // results with the answer of another job's call
	Packs                int `json:"packs"`             // calls of several jobs
	PacksKilled          int `json:"packs_killed"`      // of these, under way when weir was killed
	OtherLetters         int `json:"other_letters"`
	Refused              int `json:"refused"`
	LateTries            int `json:"late_tries"` // refused jobs of which another try arrived when there was room again
	RefusedWithoutLetter int `json:"refused_without_letter"`
	RefusedWithoutEvent  int `json:"refused_without_event"`

	Operations       int `json:"operations,omitempty"`
	OperationsKilled int `json:"operations_killed,omitempty"` // of these, running when weir was killed
	Polls            int `json:"polls,omitempty"`
	StrayPolls       int `json:"stray_polls,omitempty"`     // of no operation
	SubmittedAgain   int `json:"submitted_again,omitempty"` // calls of jobs whose operation had been polled

	Reused       int  `json:"reused,omitempty"` // ends with the answer of an equal job
	ReusedWrong  int  `json:"reused_wrong,omitempty"`
	AskedAgain   int  `json:"asked_again,omitempty"`   // calls for requests whose answer was fresh
	AskedExcused int  `json:"asked_excused,omitempty"` // further ones, which a kill explains
	JudgesFresh  bool `json:"judges_fresh,omitempty"`  // AskedAgain was judged

	Callbacks    bool `json:"callbacks,omitempty"`
	Posted       int  `json:"posted,omitempty"`        // ids of the posts that the receiver took
	PostedAgain  int  `json:"posted_again,omitempty"`  // posts of an end that the receiver had taken before
	PostsRefused int  `json:"posts_refused,omitempty"` // by the receiver
	Unposted     int  `json:"unposted,omitempty"`
	Misposted    int  `json:"misposted,omitempty"` // ids that do not belong to exactly one end

	Settled         int   `json:"settled,omitempty"`        // done jobs whose charge was compared with the api's
	SettledWrong    int   `json:"settled_wrong,omitempty"`  // of these, charged other tokens than they took
	SettledUntold   int   `json:"settled_untold,omitempty"` // of these, charged estimates by recovery: the notes were lost
	Exceeding       int   `json:"exceeding,omitempty"`      // calls that took more than they had reserved
	TokensOver      int   `json:"tokens_over,omitempty"`    // windows over the limit even by what calls had reserved
	TokensDoubtful  int   `json:"tokens_doubtful,omitempty"`
	TokensByTold    int   `json:"tokens_by_told,omitempty"` // windows over only by what calls took beyond reservations
	TokensHeld      int   `json:"tokens_held,omitempty"`    // calls that waited longest for the limit
	TokensFullest   int64 `json:"tokens_fullest,omitempty"` // tokens in the fullest window
	BilledDone      int64 `json:"billed_done,omitempty"`    // by the api for jobs that are done, in millionths
	BilledInDoubt   int64 `json:"billed_in_doubt,omitempty"`
	ReportedSpent   int64 `json:"reported_spent,omitempty"` // by weir spend
	ReportedInDoubt int64 `json:"reported_in_doubt,omitempty"`

	NamesUnknown bool `json:"names_unknown"` // UnknownUnnamed must be 0, because only kills made calls unknown

	Fullest   float64       `json:"fullest"` // the fullest window, relative to what is allowed
	FullestOf string        `json:"fullest_of"`
	HeldUp    time.Duration `json:"held_up_ns"`

	WorkerKills int               `json:"worker_kills"`
	ServerKills int               `json:"server_kills"`
	AtPoints    int               `json:"at_points"`
	Points      map[string]int    `json:"points"`
	Missed      int               `json:"points_missed"`
	ByThem      int               `json:"ended_by_itself"`
	Faults      map[plan.Kind]int `json:"faults"`

	// From a kill to the next call.
	Recovery       Recovery `json:"recovery"`
	WorkerRecovery Recovery `json:"worker_recovery"`
	ServerRecovery Recovery `json:"server_recovery"`

	Changed    bool             `json:"config_changed"`
	Ways       map[plan.Way]int `json:"config_ways,omitempty"`
	Memory     []MemoryLife     `json:"memory,omitempty"`
	MemoryOver int              `json:"memory_over"` // lives that exceeded their limit and its margin
	MemoryDied int              `json:"memory_died"`
	Counted    bool             `json:"spend_counted"`
	Spent      int              `json:"spent_cents"` // by weir's own count
	SpentLeast int              `json:"spent_least_cents"`
	SpentMost  int              `json:"spent_most_cents"`

	// The fields of a fleet.
	Replicas      int            `json:"replicas,omitempty"`
	AtOnce        int64          `json:"at_once,omitempty"` // maximum of concurrent calls
	AtOnceOutcome bucket.Outcome `json:"at_once_outcome,omitempty"`
	Aftermath     []Aftermath    `json:"aftermath,omitempty"`
	Shares        []Share        `json:"shares,omitempty"`
	Shared        bucket.Outcome `json:"shares_outcome,omitempty"`
	PowerCuts     int            `json:"power_cuts,omitempty"`
	CutRewriting  int            `json:"cut_while_rewritten,omitempty"` // of these, while a block was rewritten
	Trouble       map[string]int `json:"producers_told,omitempty"`      // the answers to failed tries of producers

	// The fields of the store inside weir.
	Restores     int `json:"restores,omitempty"`
	Unnoticed    int `json:"restores_unnoticed,omitempty"`
	RestoresTold int `json:"restores_told,omitempty"`
	Gone         int `json:"gone,omitempty"` // accepted between a backup and its restore
	Flips        int `json:"flips,omitempty"`
	Damaged      int `json:"damaged,omitempty"` // jobs lost by flipped bytes
	Untold       int `json:"damaged_untold,omitempty"`
	EndsHurt     int `json:"ends_damaged,omitempty"`   // jobs whose end was in a damaged block
	UnreadHurt   int `json:"unread_damaged,omitempty"` // damaged streams that do not deliver all messages that they count
	Unmended     int `json:"not_mended,omitempty"`     // copies that stayed damaged, as nats-server is known to leave them
	CalledAgain  int `json:"called_again,omitempty"`   // because weir lost what it knew of them, and said so

	// The fields of a redrive under faults.
	Redrives        string `json:"redrives,omitempty"`
	Redriven        int    `json:"redriven,omitempty"`
	RedrivenLost    int    `json:"redriven_lost,omitempty"`
	RedrivenTwice   int    `json:"redriven_twice,omitempty"`
	RedrivenStopped int    `json:"redriven_while_stopped,omitempty"`

	Examples []string `json:"examples,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// ConfigChanges returns how many configurations took effect, without those that restored an api.
func (r *Report) ConfigChanges() int { return r.Faults[plan.ChangeConfig] }

// IdleKills returns how often weir was killed while nothing was queued.
func (r *Report) IdleKills() int { return r.Faults[plan.KillIdle] }

// mostExamples bounds how many examples are listed.
const mostExamples = 20

func (r *Report) example(what, which string) {
	if len(r.Examples) < mostExamples {
		r.Examples = append(r.Examples, what+": "+which)
	}
}

func (r *Report) countKills(e *Evidence) {
	for _, k := range e.Kills {
		if k.What == "server" {
			r.ServerKills++
			continue
		}
		if k.What == Idle {
			continue // counted as a fault
		}
		r.WorkerKills++
		if k.Point != "" {
			r.AtPoints++
			r.Points[string(k.Point)]++
		}
	}
}

// Kept reports whether every promise was kept, as far as this machine can tell.
func (r *Report) Kept() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Outcome == bucket.Fail })
}

func (r *Report) findings() []Finding {
	var all []Finding
	add := func(name string, bad int, format string, args ...any) {
		outcome := bucket.Pass
		if bad > 0 {
			outcome = bucket.Fail
		}
		all = append(all, Finding{outcome, name, fmt.Sprintf(format, args...)})
	}
	add("accepted", 0, "%d, of them %d with a result", r.Accepted, r.Results)
	add("called", r.Unasked, "%d of them, in %d calls (%d answered 429); %d other jobs", r.Called, r.Calls, r.PushedBack, r.Unasked)
	add("lost", r.Lost+r.Waiting, "%d; %d still wait", r.Lost, r.Waiting)
	if r.Unread > 0 {
		add("unread", r.Unread, "%d streams count results, letters or events that they do not give", r.Unread)
	}
	add("ended twice", r.EndedTwice, "%d", r.EndedTwice)
	if r.Idempotent || r.Changed {
		add("called twice", r.CalledTwice+r.BilledTwice, "%d with another idempotency key or none; %d calls repeated with the same; %d billed twice",
			r.CalledTwice, r.Repeats, r.BilledTwice)
	} else {
		add("called twice", r.CalledTwice, "%d", r.CalledTwice)
	}
	if r.Packs > 0 {
		add("packs", 0, "%d calls of several jobs, %d of them under way at a kill", r.Packs, r.PacksKilled)
	}
	if r.Operations+r.Polls > 0 {
		add("operations", r.StrayPolls+r.SubmittedAgain, "%d, of them %d ran at a kill; %d polls, %d of no operation; %d calls of jobs whose operation had been polled",
			r.Operations, r.OperationsKilled, r.Polls, r.StrayPolls, r.SubmittedAgain)
	}
	add("out of order", r.OutOfOrder, "%d first calls; %d overtaken by less than the jitter or lost by the network%s", r.OutOfOrder, r.Overtaken, r.passed())
	add("over-rate", r.OverRate, "%d windows; the fullest was used to %.0f %% (%s)", r.OverRate, 100*r.Fullest, cmp.Or(r.FullestOf, "all keys"))
	if last := &all[len(all)-1]; r.OverRate == 0 && r.Doubtful > 0 {
		last.Outcome = bucket.Inconclusive
		last.Text += fmt.Sprintf("; %d perhaps: this machine let programs wait for up to %v", r.Doubtful, r.HeldUp.Round(time.Millisecond))
	}
	unexplained := r.Unknown - r.UnknownExplained
	if r.Idempotent && !r.Changed && r.Packs == 0 {
		unexplained = r.Unknown // none is required; a pack of which some jobs have ended cannot be repeated
	}
	if r.NamesUnknown {
		unexplained += r.UnknownUnnamed
	}
	add("unknown parked", unexplained, "%d (%.3f %% of accepted), %d explained by an intent; %d of them had reached the api, which never saw %d; %d were under way at a kill (%d answered just before); %d were not, and were parked for it",
		r.Unknown, percent(r.Unknown, r.Accepted), r.UnknownExplained, r.UnknownCalled, r.UnknownNeverSeen, r.UnknownUnderWay, r.UnknownAnswered, r.UnknownUnnamed)
	add("answers", r.OthersAnswers, "%d results have that of another job's call", r.OthersAnswers)
	add("other letters", r.OtherLetters, "%d of accepted jobs", r.OtherLetters)
	add("refused", r.RefusedWithoutLetter+r.RefusedWithoutEvent, "%d told 429; %d without a letter, %d without an event%s",
		r.Refused, r.RefusedWithoutLetter, r.RefusedWithoutEvent, r.lateTries())
	if r.Reused+r.ReusedWrong+r.AskedAgain > 0 {
		fresh := "this run does not show which of them weir knew"
		if r.JudgesFresh {
			fresh = fmt.Sprintf("%d calls although the answer was fresh, and %d that a kill explains", r.AskedAgain, r.AskedExcused)
		}
		add("reused", r.ReusedWrong+r.AskedAgain, "%d ends with the answer of an equal job, %d wrongly; %s", r.Reused, r.ReusedWrong, fresh)
	}
	if r.Callbacks {
		add("callbacks", r.Unposted+r.Misposted, "%d ends posted, %d posts refused, %d repeated; %d ends not posted, %d ids not of one end alone",
			r.Posted, r.PostsRefused, r.PostedAgain, r.Unposted, r.Misposted)
	}
	if r.Counted {
		wrong := max(0, r.SpentLeast-r.Spent) + max(0, r.Spent-r.SpentMost)
		add("spent", wrong, "%.2f by its own count; the ledger allows %.2f to %.2f", cents(r.Spent), cents(r.SpentLeast), cents(r.SpentMost))
	}
	if r.Settled > 0 {
		r.addSettled(add)
	}
	if r.Restores+r.Unnoticed > 0 {
		add("restored", r.Unnoticed+max(0, r.Restores-r.RestoresTold), "%d backups put back, %d without a refusal, %d told; %d accepted jobs gone with what was behind them",
			r.Restores, r.Unnoticed, r.RestoresTold, r.Gone)
	}
	if r.Flips > 0 {
		add("damaged", r.Untold, "%d times bytes of messages flipped, %d jobs lost by it, %d of them without a word%s", r.Flips, r.Damaged, r.Untold, r.hurt())
	}
	if r.CalledAgain > 0 {
		add("called again", 0, "%d jobs of which the store had lost what it knew, as weir said", r.CalledAgain)
	}
	if r.Redrives != "" {
		add("redriven", r.RedrivenLost+r.RedrivenTwice+r.RedrivenStopped, "%s", r.Redrives)
	}
	if len(r.Memory) > 0 {
		add("memory", r.MemoryOver+r.MemoryDied, "%s; %d over their limit and its margin, %d died", peaks(r.Memory), r.MemoryOver, r.MemoryDied)
	}
	if r.Replicas > 0 {
		all = append(all, r.fleetFindings()...)
	}
	return all
}

// hurt describes what a fleet's damaged copies did, if there are any.
func (r *Report) hurt() string {
	if r.EndsHurt+r.UnreadHurt+r.Unmended == 0 {
		return ""
	}
	return fmt.Sprintf("; nats-server did not mend %d copies, with the ends of %d jobs, and %d streams count what they do not give",
		r.Unmended, r.EndsHurt, r.UnreadHurt)
}

// passed describes the jobs that more urgent ones passed, if there are any.
func (r *Report) passed() string {
	if r.Passed == 0 {
		return ""
	}
	return fmt.Sprintf("; more urgent jobs passed %d", r.Passed)
}

// lateTries describes the late tries, if there are any.
func (r *Report) lateTries() string {
	if r.LateTries == 0 {
		return ""
	}
	return fmt.Sprintf("; %d taken later all the same, when an earlier try of theirs arrived late", r.LateTries)
}

func percent(n, of int) float64 { return 100 * float64(n) / float64(max(1, of)) }

// Print writes the table.
func (r *Report) Print(w io.Writer) error {
	kind := "not idempotent"
	switch {
	case r.Changed && r.Idempotent:
		kind = "idempotent at first"
	case r.Changed:
		kind = "not idempotent at first"
	case r.Idempotent:
		kind = "idempotent"
	}
	t := &text{}
	where := string(r.Server) + " server"
	if r.Replicas > 0 {
		where = fmt.Sprintf("%d replicas, %d NATS nodes, Redis", r.Replicas, plan.Nodes)
	}
	t.add("weir-torture: seed %d, %s, an api that is %s, %v\n", r.Seed, where, kind, r.Took.Round(time.Second))
	marks := map[bucket.Outcome]string{bucket.Pass: "ok", bucket.Inconclusive: "?", bucket.Fail: "FAIL"}
	for _, f := range r.Findings {
		t.add("  %-4s  %-14s  %s", marks[f.Outcome], f.Name, f.Text)
	}
	t.add("")
	t.add("        kill -9         weir %d (%d of them at chosen points, %d points not reached in time), server %d", r.WorkerKills, r.AtPoints, r.Missed, r.ServerKills)
	if r.Replicas > 0 {
		r.fleetLines(t)
	} else {
		r.faultLines(t)
	}
	if len(r.Ways) > 0 {
		var ways []string
		for _, w := range sortedKeys(r.Ways) {
			ways = append(ways, fmt.Sprintf("%s %d", w, r.Ways[w]))
		}
		t.add("        in force by     %s", strings.Join(ways, "; "))
	}
	if r.ByThem > 0 {
		t.add("        weir ended by itself and was started again  %d", r.ByThem)
	}
	t.add("        this machine let programs wait for up to %v; the jitter is %v", r.HeldUp.Round(time.Millisecond), plan.Jitter)
	for _, n := range r.Notes {
		t.add("        note            %s", n)
	}
	for _, x := range r.Examples {
		t.add("        example         %s", x)
	}
	t.add("\nAgain: %s", r.Command)
	if r.Kept() {
		t.add("PASS")
	} else {
		t.add("FAIL")
	}
	_, err := io.WriteString(w, strings.Join(t.lines, "\n")+"\n")
	return err
}

// faultLines prints the figures of one weir.
func (r *Report) faultLines(t *text) {
	for _, k := range sortedKeys(r.Faults) {
		t.add("        %-38s  %d", k, r.Faults[k])
	}
	if len(r.Points) > 0 {
		var points []string
		for _, p := range sortedKeys(r.Points) {
			points = append(points, fmt.Sprintf("%s %d", p, r.Points[p]))
		}
		t.add("        points          %s", strings.Join(points, ", "))
	}
	t.add("        recovery        p50 %s, p99 %s from kill -9 to the next call (weir %s, %s; server %s, %s)",
		short(r.Recovery.P50), short(r.Recovery.P99), short(r.WorkerRecovery.P50), short(r.WorkerRecovery.P99),
		short(r.ServerRecovery.P50), short(r.ServerRecovery.P99))
}

func sortedKeys[K ~string](m map[K]int) []K { return slices.Sorted(maps.Keys(m)) }

type text struct{ lines []string }

func (t *text) add(format string, args ...any) {
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}

func short(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
