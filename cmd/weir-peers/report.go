//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"weir/cmd/internal/contest"
)

// Report has the results of a run.
type Report struct {
	Command   string            `json:"command"`
	Machine   Machine           `json:"machine"`
	Versions  map[string]string `json:"versions"`
	Rounds    int               `json:"rounds"`
	Jobs      int               `json:"jobs"`
	Keys      int               `json:"keys"`
	AtOnce    int               `json:"calls_at_once"`
	Body      int               `json:"body_bytes"`
	Seconds   int               `json:"rate_seconds"`
	EndToEnd  []*Found          `json:"end_to_end,omitempty"`
	Best      *Best             `json:"end_to_end_weir_by_best,omitempty"`
	Intake    []*Found          `json:"intake,omitempty"`
	Paces     []*Pace           `json:"rates,omitempty"`
	Unlimited []LeftOut         `json:"without_a_limiter,omitempty"`
	LeftOut   []LeftOut         `json:"left_out,omitempty"`
	Took      float64           `json:"took_s"`
}

// Machine is a contest.Machine with other names in JSON.
type Machine struct {
	OS    string  `json:"-"`
	Cores int     `json:"cores"`
	CPU   string  `json:"cpu"`
	Load  string  `json:"load_at_the_start"`
	Sync  float64 `json:"fsync_us"`
}

// String describes the machine in one line.
func (m Machine) String() string {
	return fmt.Sprintf("%d cores, %s, an fsync takes %s µs, load %s at the start", m.Cores, m.CPU, short(m.Sync), m.Load)
}

// LeftOut is something that was not measured, and why.
type LeftOut struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

func (r *Report) leaveOut(name string, why error) {
	text, _, _ := strings.Cut(why.Error(), "\n")
	r.LeftOut = append(r.LeftOut, LeftOut{name, text})
}

// Found has the figures of a contender.
type Found struct {
	Name        string  `json:"name"`
	Peer        string  `json:"peer"`
	Durability  string  `json:"durability"`
	Durable     bool    `json:"durable_before_the_answer"`
	Jobs        Figures `json:"jobs_per_s"`     // from the first publish to the last call; of intake, to the last acknowledgement
	Calls       Figures `json:"calls_per_s"`    // from the first call to the last
	CPU         Figures `json:"cpu_us_per_job"` // of store and workers
	ProducerCPU Figures `json:"producer_cpu_us_per_job"`
	Weir        Figures `json:"weir_by_this"` // weir's jobs/s divided by this one's, round by round
	Repeated    int     `json:"called_twice"`
}

func (f *Found) last() string {
	return fmt.Sprintf("%s jobs/s, %s µs of CPU a job", short(f.Jobs.Each[len(f.Jobs.Each)-1]), short(f.CPU.Each[len(f.CPU.Each)-1]))
}

func (f *Found) sum() {
	for _, x := range []*Figures{&f.Jobs, &f.Calls, &f.CPU, &f.ProducerCPU} {
		x.sum()
	}
}

// Pace says how a contender kept a rate.
type Pace struct {
	Name    string  `json:"name"`
	Rate    int     `json:"rate"`
	Use     Figures `json:"use"`            // part of the rate that was used, from the first call to the last
	Fullest int     `json:"fullest_second"` // the most calls within any second of any round
	// Excused is Fullest for a shorter second: less the longest time for which the machine let programs wait in that
	// round, because a time stamp may be late by so much.
	Excused  int     `json:"fullest_second_less_pause"`
	Pause    float64 `json:"machine_held_up_ms"` // the longest such wait in any round
	Repeated int     `json:"called_twice"`
}

// Figures are one figure of each round.
type Figures struct {
	contest.Spread
	Each []float64 `json:"each_round"`
}

func (f *Figures) add(x float64) { f.Each = append(f.Each, x) }

func (f *Figures) sum() { f.Spread = contest.SpreadOf(f.Each) }

// compare divides weir's figures by each contender's, round by round, so that a slow machine in a round changes no
// ratio.
func compare(all []*Found) {
	weir := slices.IndexFunc(all, func(f *Found) bool { return f.Name == "weir" })
	if weir < 0 {
		return
	}
	for _, f := range all {
		f.Weir.Each = contest.Ratios(all[weir].Jobs.Each, f.Jobs.Each)
		f.Weir.sum()
	}
}

// Best is weir's jobs/s divided by those of the best peer in the same round. It leaves out weir itself, and bare NATS,
// which lacks what the others do.
type Best struct {
	Peer        Figures `json:"peer"`
	DurablePeer Figures `json:"durable_peer"` // of the peers that have a job on disk before they say that they took it
}

// best divides weir's figures by those of the best peer of each round. It returns nil if no peer was measured in every
// round.
func best(all []*Found, rounds int) *Best {
	weir := slices.IndexFunc(all, func(f *Found) bool { return f.Name == "weir" })
	if weir < 0 {
		return nil
	}
	b := &Best{}
	for i := range rounds {
		most, durable := 0.0, 0.0
		for _, f := range all {
			if f.Peer == "weir" || f.Peer == "nats" {
				continue
			}
			most = max(most, f.Jobs.Each[i])
			if f.Durable {
				durable = max(durable, f.Jobs.Each[i])
			}
		}
		if durable == 0 {
			return nil
		}
		b.Peer.add(all[weir].Jobs.Each[i] / most)
		b.DurablePeer.add(all[weir].Jobs.Each[i] / durable)
	}
	b.Peer.sum()
	b.DurablePeer.sum()
	return b
}

// print writes the report as Markdown tables, or as JSON.
func (r *Report) print(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n", r.Command, r.Machine)
	for i, name := range slices.Sorted(maps.Keys(r.Versions)) {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %s", name, r.Versions[name])
	}
	fmt.Fprintf(&b, "\n%d rounds in turns, %d jobs each, %d keys, bodies of %d bytes, %d calls at once; medians (least, most)\n", r.Rounds, r.Jobs, r.Keys,
		r.Body, r.AtOnce)
	if len(r.EndToEnd) > 0 {
		b.WriteString("\n| end to end | on disk | jobs/s, first publish to last call | calls/s, first call to last | CPU a job: store and workers | producer | weir by it |\n|---|---|---|---|---|---|---|\n")
		for _, f := range r.EndToEnd {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s µs | %s µs | %s |\n", f.Name, f.Durability, f.Jobs, short(f.Calls.Median), short(f.CPU.Median),
				short(f.ProducerCPU.Median), f.Weir)
		}
	}
	if r.Best != nil {
		fmt.Fprintf(&b, "\nweir by the best peer of a round: %s; by the best that has a job on disk before it says so: %s\n", r.Best.Peer, r.Best.DurablePeer)
	}
	if len(r.Intake) > 0 {
		b.WriteString("\n| intake | on disk | jobs/s | CPU a job: store | producer | weir by it |\n|---|---|---|---|---|---|\n")
		for _, f := range r.Intake {
			fmt.Fprintf(&b, "| %s | %s | %s | %s µs | %s µs | %s |\n", f.Name, f.Durability, f.Jobs, short(f.CPU.Median), short(f.ProducerCPU.Median), f.Weir)
		}
	}
	if len(r.Paces) > 0 {
		fmt.Fprintf(&b, "\nA backlog of %d s on one key:\n\n| limit | by | used of it | most calls in 1 s | in 1 s less the machine's worst pause |\n|---|---|---|---|---|\n", r.Seconds)
		for _, p := range r.Paces {
			fmt.Fprintf(&b, "| %d/s | %s | %.1f %% (%.1f, %.1f) | %d, %.2f × | %d (%.0f ms) |\n", p.Rate, p.Name, 100*p.Use.Median, 100*p.Use.Least,
				100*p.Use.Most, p.Fullest, float64(p.Fullest)/float64(p.Rate), p.Excused, p.Pause)
		}
		for _, u := range r.Unlimited {
			fmt.Fprintf(&b, "| | %s | no limiter: %s | | |\n", u.Name, u.Why)
		}
	}
	for _, f := range append(slices.Clone(r.EndToEnd), r.Intake...) {
		if f.Repeated > 0 {
			fmt.Fprintf(&b, "\n%s: %d jobs were called twice.\n", f.Name, f.Repeated)
		}
	}
	for _, l := range r.LeftOut {
		fmt.Fprintf(&b, "\nleft out: %s: %s\n", l.Name, l.Why)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// String returns the median, and the least and the most in brackets.
func (f Figures) String() string {
	return fmt.Sprintf("%s (%s, %s)", short(f.Median), short(f.Least), short(f.Most))
}

// short writes a figure with about three digits.
func short(f float64) string {
	switch {
	case f >= 10_000:
		return strconv.Itoa(int(f+50)/100*100/1000) + "," + fmt.Sprintf("%03d", int(f+50)/100*100%1000)
	case f >= 1000:
		return strconv.Itoa(int(f+5) / 10 * 10)
	case f >= 100:
		return strconv.FormatFloat(f, 'f', 0, 64)
	case f >= 10:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'f', 2, 64)
}

func itoa(n int) string { return strconv.Itoa(n) }
