package webhook

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/deadletter"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// cloudEvent returns an event as its stream stores it, some seconds after noon.
func cloudEvent(t *testing.T, seconds int, kind, api, key, data string) event {
	t.Helper()
	at := noon.Add(time.Duration(seconds) * time.Second).Format(time.RFC3339Nano)
	e, ok := readEvent(fmt.Appendf(nil, `{"specversion":"1.0","id":"id.%d","source":"/weir/%s","type":"weir.%s.v1","subject":%s,"time":%q,"data":%s}`, seconds, api, kind, mustMarshal(key), at, data))
	if !ok {
		t.Fatalf("%s is no event", data)
	}
	return e
}

// overflow returns the event of one overflow of the key +43999 of sms.
func overflow(t *testing.T, n int) event {
	t.Helper()
	return cloudEvent(t, n, "throttled", "sms", "+43999", fmt.Sprintf(`{"job":"j%d","reason":"overflow","detail":"bucket full: 5 of 5","dead_letter_seq":%d}`, n, n+100))
}

// TestWindowGroups checks that a window groups events of the same type, api, key and reason, keeps all others apart as
// far as it has room, and counts every event.
func TestWindowGroups(t *testing.T) {
	var w window
	for n := range 40 {
		w.add(overflow(t, n))
	}
	w.add(cloudEvent(t, 41, "dead", "sms", "+43999", `{"reason":"rejected","detail":"the api answered 400"}`))
	w.add(cloudEvent(t, 42, "dead", "sms", "+43999", `{"reason":"expired","detail":"its deadline has passed"}`))
	if len(w.groups) != 3 || w.groups[0].events != 40 || w.events != 42 {
		t.Fatalf("%d groups of %d events", len(w.groups), w.events)
	}
	for n := range 3 * mostGroups {
		w.add(cloudEvent(t, n, "throttled", "sms", fmt.Sprint(n), `{"reason":"overflow"}`))
	}
	sum := 0
	for _, g := range w.groups {
		sum += g.events
	}
	if last := w.groups[len(w.groups)-1]; len(w.groups) > mostGroups+1 || sum != w.events || !last.others || !strings.Contains(last.text(time.Minute, noon), "overflows of others") {
		t.Errorf("%d groups of %d events, which have %d", len(w.groups), w.events, sum)
	}
}

// TestTexts checks the sentence for each type of event. It says how many events there were, and when.
func TestTexts(t *testing.T) {
	for want, c := range map[string]struct {
		events    []event
		collected time.Duration
		late      time.Duration // of the post
	}{
		"1 overflow of `sms/+43999`: `bucket full: 5 of 5` (letter 101)":                                                                             {events: []event{overflow(t, 1)}},
		"3 overflows of `sms/+43999` in the last minute: `bucket full: 5 of 5` (newest letter 103)":                                                  {[]event{overflow(t, 1), overflow(t, 2), overflow(t, 3)}, time.Minute, 0},
		"2 overflows of `sms/+43999` between 2026-01-02T12:00:01Z and 2026-01-02T12:08:20Z: `bucket full: 5 of 5` (newest letter 600)":               {[]event{overflow(t, 1), overflow(t, 500)}, time.Minute, 0},
		"2 dead letters of `pay/c` in the last 30s, rejected: `the api answered 400` (newest letter 7)":                                              {[]event{cloudEvent(t, 1, "dead", "pay", "c", `{"reason":"rejected"}`), cloudEvent(t, 2, "dead", "pay", "c", `{"reason":"rejected","detail":"the api answered 400","dead_letter_seq":7}`)}, 30 * time.Second, 0},
		"pay is held until 2026-01-03T00:00:00Z: `the budget spend is spent`":                                                                        {events: []event{cloudEvent(t, 1, "held", "pay", "", `{"until":"2026-01-03T00:00:00Z","why":"the budget spend is spent"}`)}},
		"the budget spend of pay has no room for a usual call until 2026-01-03T00:00:00Z: 0.30 of 0.30 is used (the newest of 2 in the last minute)": {[]event{cloudEvent(t, 1, "budget", "pay", "", `{"limit":"spend"}`), cloudEvent(t, 2, "budget", "pay", "", `{"limit":"spend","percent":100,"counted":"0.30","budget":"0.30","until":"2026-01-03T00:00:00Z"}`)}, time.Minute, 0},
		"`ann` put version 7 of the configuration in force: 3 changes":                                                                               {events: []event{cloudEvent(t, 1, "config", "", "", `{"who":"ann","new_version":7,"changes":3}`)}},
		"`ann` redrove 12 dead letters: `api=pay`":                                                                                                   {events: []event{cloudEvent(t, 1, "redriven", "pay", "", `{"who":"ann","letters":12,"selection":"api=pay"}`)}},
		"`ann` redrove 0 dead letters, and deleted 3 whose jobs had gone on: `api=pay`":                                                              {events: []event{cloudEvent(t, 1, "redriven", "pay", "", `{"who":"ann","letters":0,"settled":3,"selection":"api=pay"}`)}},
		"`ann` read the body of letter 56":                                                                                                           {events: []event{cloudEvent(t, 1, "revealed", "pay", "c", `{"who":"ann","dead_letter_seq":56}`)}},
		"the budget spend of pay has no room for a usual call until 2026-01-03T00:00:00Z: 199.90 of 200.00 is used":                                  {events: []event{cloudEvent(t, 1, "budget", "pay", "", `{"limit":"spend","percent":100,"counted":"199.90","budget":"200.00","until":"2026-01-03T00:00:00Z"}`)}},
		"80 % of the budget spend of pay is used: 8.00 of 10.00 until 2026-01-03T00:00:00Z":                                                          {events: []event{cloudEvent(t, 1, "budget", "pay", "", `{"limit":"spend","percent":80,"counted":"8.00","budget":"10.00","until":"2026-01-03T00:00:00Z"}`)}},
		"weir-1 found a stream changed: `WEIR_CALLS: it was purged`":                                                                                 {events: []event{cloudEvent(t, 1, "unhealthy", "", "", `{"instance":"weir-1","why":"WEIR_CALLS: it was purged","stream":"WEIR_CALLS"}`)}},
		"weir-1 is not ready: `the disk is full`":                                                                                                    {events: []event{cloudEvent(t, 1, "unhealthy", "", "", `{"instance":"weir-1","why":"the disk is full"}`)}},
		"3 overflows of `sms/+43999` between 2026-01-02T12:00:01Z and 2026-01-02T12:00:03Z: `bucket full: 5 of 5` (newest letter 103)":               {[]event{overflow(t, 1), overflow(t, 2), overflow(t, 3)}, time.Minute, time.Hour},
		"1 overflow of `sms/+43999` at 2026-01-02T12:00:01Z: `bucket full: 5 of 5` (letter 101)":                                                     {[]event{overflow(t, 1)}, 0, time.Hour},
		"pay is called again: `the budget spend is new` (at 2026-01-02T12:00:01Z)":                                                                   {[]event{cloudEvent(t, 1, "resumed", "pay", "", `{"why":"the budget spend is new"}`)}, 0, time.Hour},
	} {
		var w window
		for _, e := range c.events {
			w.add(e)
		}
		if got := w.groups[0].text(c.collected, c.events[len(c.events)-1].at.Add(c.late)); got != want {
			t.Errorf("it says\n%s, want\n%s", got, want)
		}
	}
}

// TestStateIsToldInOrder checks that a window keeps the states of a subject in order, and those of each instance, limit
// and user apart.
func TestStateIsToldInOrder(t *testing.T) {
	var w window
	for n, e := range []struct{ kind, api, data string }{
		{"held", "pay", `{}`},
		{"held", "pay", `{}`},
		{"resumed", "pay", `{}`},
		{"held", "pay", `{}`},
		{"resumed", "sms", `{}`},
		{"unhealthy", "", `{"instance":"i1"}`},
		{"unhealthy", "", `{"instance":"i2"}`},
		{"unhealthy", "", `{"instance":"i2","stream":"WEIR_CALLS"}`},
		{"healthy", "", `{"instance":"i1"}`},
		{"unhealthy", "", `{"instance":"i1"}`},
		{"budget", "pay", `{"limit":"day"}`},
		{"budget", "pay", `{"limit":"month"}`},
		{"budget", "pay", `{"limit":"day"}`},
		{"config", "", `{"who":"ann"}`},
		{"config", "", `{"who":"bob"}`},
	} {
		w.add(cloudEvent(t, n, e.kind, e.api, "", e.data))
	}
	var got []string
	for _, g := range w.groups {
		got = append(got, fmt.Sprintf("%d %s %s", g.events, g.kind, g.api+g.about.instance+g.about.limit+g.about.who))
	}
	want := "2 held pay; 1 resumed pay; 1 held pay; 1 resumed sms; 1 unhealthy i1; 1 unhealthy i2; 1 unhealthy i2; 1 healthy i1; 1 unhealthy i1; " +
		"2 budget payday; 1 budget paymonth; 1 config ann; 1 config bob"
	if told := strings.Join(got, "; "); told != want {
		t.Errorf("it tells\n%s, want\n%s", told, want)
	}
}

// TestForeignTextStaysText checks that no text of a producer, an api or an operator adds a line, a link or a mention to
// a chat.
func TestForeignTextStaysText(t *testing.T) {
	const foreign = "a` <!channel> @here\n[pay](http://evil.example) \u202ex\u001b[0m"
	var w window
	at := func(kind, data string) event {
		return cloudEvent(t, 1, kind, "sms", foreign, data)
	}
	text, err := json.Marshal(foreign)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range deadletter.EventTypes() {
		w.add(at(string(kind), fmt.Sprintf(`{"detail":%[1]s,"why":%[1]s,"who":%[1]s,"selection":%[1]s,"reason":"overflow"}`, text)))
	}
	for _, g := range w.groups {
		said := g.text(time.Minute, noon)
		outside := ""
		for i, part := range strings.Split(said, "`") {
			if i%2 == 0 {
				outside += part
			}
		}
		if strings.ContainsAny(said, "\n\u202e\u001b") || strings.ContainsAny(outside, "<>@[]") || strings.Contains(outside, "evil") || strings.Count(said, "`")%2 != 0 {
			t.Errorf("of %s it says %q", g.kind, said)
		}
	}
}

// TestFormats checks both formats. The standard format posts the newest event with the number of all events, under an
// id of its own. The slack format posts one text for all groups, in which a key cannot notify a channel.
func TestFormats(t *testing.T) {
	var w window
	for n := range 3 {
		w.add(overflow(t, n))
	}
	w.add(cloudEvent(t, 4, "throttled", "sms", "<!channel>", `{"reason":"overflow"}`))
	m := render(&config.Destination{Format: config.StandardFormat, Group: time.Minute}, w.groups[:1])
	var posted struct {
		ID    string
		Count int       `json:"groupcount"`
		Since time.Time `json:"groupsince"`
	}
	if err := json.Unmarshal(m.body, &posted); err != nil || posted.ID != "id.2" || posted.Count != 3 || !posted.Since.Equal(noon) || m.id != "id_0_3" {
		t.Errorf("as %s it posts %s: %v", m.id, m.body, err)
	}
	single := render(&config.Destination{Format: config.StandardFormat}, w.groups[1:])
	if string(single.body) != string(w.groups[1].json) || single.id != "id_4" {
		t.Errorf("as %s it posts %s", single.id, single.body)
	}
	m = render(&config.Destination{Format: config.SlackFormat, Group: time.Minute}, w.groups)
	var text struct{ Text string }
	if err := json.Unmarshal(m.body, &text); err != nil || strings.Count(text.Text, "\n") != 1 || strings.Contains(text.Text, "<!") || !strings.Contains(text.Text, "`sms/&lt;!channel&gt;`") || m.kind != "application/json" {
		t.Errorf("it posts %s as %s: %v", m.body, m.kind, err)
	}
}
