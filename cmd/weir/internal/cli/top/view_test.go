package top

import (
	"bufio"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"weir/cmd/weir/internal/ops/status"
	"weir/dispatcher/schedule"
)

// frameOf returns a frame of an api with some buckets.
func frameOf(at time.Time, accepted uint64, keys ...string) *Frame {
	f := &Frame{Status: &status.Status{Healthy: true, At: at, Server: "nats://s:4222", APIs: []*status.API{{API: "pay", Jobs: 3, Accepted: accepted, Spent: "1.20"}}}}
	for i, key := range keys {
		f.Buckets = append(f.Buckets, Bucket{API: "pay", KeyState: schedule.KeyState{
			Key: key, Depth: 10 * (i + 1), Capacity: 100, WaitMS: int64(1000 * (i + 1)), Arrived: accepted, Waits: schedule.Waiting{For: schedule.WaitRate},
		}})
	}
	return f
}

// TestDrawFits checks that Draw returns as many lines as the terminal has, and none wider than it, whatever the keys
// contain and however small the terminal is.
func TestDrawFits(t *testing.T) {
	var keys []string
	for i := range 500 {
		keys = append(keys, fmt.Sprintf("key-%d-%s", i, strings.Repeat("ü", i%60)))
	}
	keys = append(keys, "evil\x1b[2Jkey", "new\nline")
	f := frameOf(time.Now(), 7, keys...)
	for i := range 40 {
		f.APIs = append(f.APIs, &status.API{API: fmt.Sprintf("api-%d", i)})
		f.Letters = append(f.Letters, status.Letters{API: "pay", Reason: "overflow", Letters: 5})
	}
	f.LettersAll = 200
	f.Problems = []status.Problem{{What: strings.Repeat("wide ", 100)}}
	for _, size := range [][2]int{{80, 24}, {40, 10}, {200, 60}} {
		v := View{Order: ByKey}
		for _, key := range []rune{keyEnd, 0, keyPageUp, 0, '/', 0} {
			lines := v.Draw(f, size[0], size[1])
			if len(lines) != size[1] {
				t.Errorf("%v: %d lines", size, len(lines))
			}
			for _, l := range lines {
				plain := strings.NewReplacer("\x1b[7m", "", "\x1b[0m", "").Replace(l)
				if utf8.RuneCountInString(plain) > size[0] || strings.ContainsAny(plain, "\x1b\n\r") {
					t.Errorf("%v: %q", size, l)
				}
			}
			v.Press(key)
		}
	}
	if text := strings.Join((&View{}).Draw(f, 80, 24), "\n"); !strings.Contains(text, "> ") || !strings.Contains(text, "200 dead letters: 5 overflow") || !strings.Contains(text, "q quit") {
		t.Errorf("80x24 lacks something:\n%s", text)
	}
}

// TestLettersOfOneAPI checks that the letters of one API are its own. If they were not counted apart, the line says that
// it counts those of all APIs.
func TestLettersOfOneAPI(t *testing.T) {
	for want, kept := range map[string][]status.Letters{
		"9 dead letters: 9 overflow of pay": {{API: "pay", Reason: "overflow", Letters: 9}, {API: "sms", Reason: "unknown", Letters: 3}},
		"no dead letters":                   {{API: "sms", Reason: "unknown", Letters: 12}},
		"12 dead letters of all APIs":       nil,
	} {
		f := frameOf(time.Now(), 7)
		f.LettersAll, f.Letters = 12, kept
		f.keepOnly("pay")
		if got := letters(f).text; got != want {
			t.Errorf("the line is %q, want %q", got, want)
		}
	}
}

// TestNarrowTerminal checks that at 40 columns the tables drop columns and cut none. The missing cells of the selected
// bucket are below the table, and a question is shown completely.
func TestNarrowTerminal(t *testing.T) {
	f := frameOf(time.Now(), 7, "a", "key-of-the-customer")
	f.Server = "nats://weir.internal.shop.example:4222"
	f.APIs[0].Pause = &schedule.Pause{Until: time.Now().Add(time.Hour)}
	f.Buckets[1].Waits = schedule.Waiting{For: schedule.WaitLimit, Limit: "credit-bureau-daily"}
	f.LettersAll = 12
	f.Letters = []status.Letters{{API: "pay", Reason: "overflow", Letters: 9}, {API: "pay", Reason: "exhausted", Letters: 3}}
	v := View{}
	for _, keys := range []string{"", "p", "?"} {
		for _, key := range keys {
			v.Press(key)
		}
		for _, l := range v.Draw(f, 40, 24) {
			if strings.Contains(l, "…") {
				t.Errorf("after %q %q is cut", keys, l)
			}
		}
	}
	v = View{}
	text := strings.Join(strings.Fields(strings.Join(v.Draw(f, 40, 24), " ")), " ")
	for _, said := range []string{"DEPTH", "20/100", "credit-bureau-daily", "? keys", "pay: paused until"} {
		if !strings.Contains(text, said) {
			t.Errorf("there is no %q:\n%s", said, strings.Join(v.Draw(f, 40, 24), "\n"))
		}
	}
}

// TestQuestionMark checks that ? shows what the keys do, and that any key leads back.
func TestQuestionMark(t *testing.T) {
	f, v := frameOf(time.Now(), 1, "a"), View{}
	v.Press('?')
	if text := strings.Join(v.Draw(f, 80, 24), "\n"); !strings.Contains(text, "pause or resume the selected bucket") || strings.Contains(text, "DEPTH") {
		t.Errorf("the keys are shown as\n%s", text)
	}
	if w := v.Press('p'); w.Deed != Nothing || v.asked != nil || !strings.Contains(strings.Join(v.Draw(f, 80, 24), "\n"), "DEPTH") {
		t.Errorf("a key leads to %+v and %+v", w, v.asked)
	}
	v.Press('?')
	if w := v.Press('q'); w.Deed != Quit {
		t.Errorf("q does %+v", w)
	}
}

// TestKeysSelectAndAsk checks that no action is carried out without a y, and that an action applies to the selected
// bucket, even if the frame has changed meanwhile.
func TestKeysSelectAndAsk(t *testing.T) {
	f := frameOf(time.Now(), 1, "a", "b", "c") // c is the deepest
	v := View{}
	v.Draw(f, 80, 24)
	press := func(keys string) (w Word) {
		for _, k := range keys {
			w = v.Press(k)
			v.Draw(f, 80, 24)
		}
		return w
	}
	if w := press("pn"); w.Deed != Nothing || v.Said != "nothing was changed" {
		t.Errorf("a no does %+v, %s", w, v.Said)
	}
	if press("jp"); !strings.Contains(v.foot(80).text, "pause pay/b?") {
		t.Errorf("asked is %s", v.foot(80).text)
	}
	f = frameOf(time.Now(), 1, "b", "a", "c") // b has fewer jobs now
	if w := press("y"); w != (Word{Pause, "pay", "b"}) {
		t.Errorf("said is %+v", w)
	}
	if w := press("Ry"); w != (Word{Resume, "pay", ""}) {
		t.Errorf("said is %+v", w)
	}
	if press("/c"); len(v.shown) != 1 || v.selected.key != "c" {
		t.Errorf("the filter shows %v, selected is %v", v.shown, v.selected)
	}
	if w := press("q\r"); w.Deed != Nothing || v.Filter != "cq" {
		t.Errorf("a typed q does %+v to %q", w, v.Filter)
	}
	if w := press("\x1b"); w.Deed != Nothing || v.Filter != "" || len(v.shown) != 3 {
		t.Errorf("Esc leaves %q", v.Filter)
	}
	if w := press("q"); w.Deed != Quit {
		t.Errorf("q does %+v", w)
	}
	v = View{}
	if w := v.Press('p'); w.Deed != Nothing || v.asked != nil {
		t.Errorf("without a bucket p asks %+v", v.asked)
	}
}

// TestOrders checks that the key s selects all orders in turn and returns to the first.
func TestOrders(t *testing.T) {
	f, v, seen := frameOf(time.Now(), 1, "b", "a", "c"), View{}, map[string]bool{}
	f.Buckets[0].Capacity, f.Buckets[1].WaitMS = 1, -1
	for range Orders() {
		v.choose(f)
		seen[fmt.Sprint(v.shown)] = true
		v.Press('s')
	}
	if v.order() != ByDepth || len(seen) != 5-1 { // the orders by arrivals and by key are the same here
		t.Errorf("%s after all, %v", v.order(), seen)
	}
}

// TestRates checks that rates are computed from the counters of two frames. A counter that was reset counts as no
// growth.
func TestRates(t *testing.T) {
	at := time.Now()
	before, f, restarted := frameOf(at, 100, "k"), frameOf(at.Add(2*time.Second), 140, "k", "new"), frameOf(at.Add(4*time.Second), 3, "k")
	if f.since(before); f.Rates[0].Come != 20 || *f.Buckets[0].ComePerS != 20 || f.Buckets[1].ComePerS != nil {
		t.Errorf("%+v %+v", f.Rates, f.Buckets)
	}
	if restarted.since(f); restarted.Rates[0].Come != 0 {
		t.Errorf("%+v", restarted.Rates)
	}
}

// TestReadKey checks the keys that readKey reads from the sequences that terminals send.
func TestReadKey(t *testing.T) {
	for sent, want := range map[string][]rune{
		"q": {'q'}, "\x1b[A": {keyUp}, "\x1bOB": {keyDown}, "\x1b[5~j": {keyPageUp, 'j'}, "\x1b": {keyEscape}, "\x1b[1;5Zx": {0, 'x'}, "ü": {'ü'},
	} {
		in, got := bufio.NewReader(strings.NewReader(sent)), []rune{}
		for {
			key, err := readKey(in)
			if err != nil {
				break
			}
			got = append(got, key)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q is read as %q, want %q", sent, got, want)
		}
	}
}

// TestBar checks that the bar of a single job is not empty, and that the bar of a full bucket is full.
func TestBar(t *testing.T) {
	for level, want := range map[float64]string{0: "············", 0.001: "▌···········", 0.5: "██████······", 1: "████████████", 7: "████████████"} {
		if got := bar(level); got != want {
			t.Errorf("%v is %s, want %s", level, got, want)
		}
	}
}
