package grammar

import (
	"strings"
	"testing"
	"time"
)

// grammarCase is a text and what its grammar makes of it: a value, or a part of the error.
type grammarCase[T comparable] struct {
	text    string
	want    T
	refused string
}

func checkGrammar[T comparable](t *testing.T, parse func(string) (T, error), cases []grammarCase[T]) {
	t.Helper()
	for _, c := range cases {
		got, err := parse(c.text)
		switch {
		case c.refused == "" && err != nil:
			t.Errorf("%q is refused: %v", c.text, err)
		case c.refused == "" && got != c.want:
			t.Errorf("%q is %v, want %v", c.text, got, c.want)
		case c.refused != "" && err == nil:
			t.Errorf("%q is accepted as %v, want the message %q", c.text, got, c.refused)
		case c.refused != "" && !strings.Contains(err.Error(), c.refused):
			t.Errorf("%q is refused with %q, want %q", c.text, err, c.refused)
		}
	}
}

func TestParseDuration(t *testing.T) {
	checkGrammar(t, ParseDuration, []grammarCase[time.Duration]{
		{text: "0", want: 0},
		{text: "0s", want: 0},
		{text: "5ms", want: 5 * time.Millisecond},
		{text: "0.5ms", want: 500 * time.Microsecond},
		{text: "1.5s", want: 1500 * time.Millisecond},
		{text: "10m", want: 10 * time.Minute},
		{text: "10min", want: 10 * time.Minute},
		{text: "24h", want: Day},
		{text: "30d", want: 30 * Day},
		{text: "2w", want: 14 * Day},
		{text: "1 day", want: Day},
		{text: "3 hours", want: 3 * time.Hour},
		{text: "1h30m", want: 90 * time.Minute},
		{text: "", refused: "is not a duration"},
		{text: "30", refused: "has no unit: write 30s"},
		{text: "-5s", refused: "is negative"},
		{text: "s", refused: "is not a duration"},
		{text: "5us", refused: `unknown unit "us"`},
		{text: "5S", refused: `unknown unit "S"`},
		{text: "1month", refused: "no fixed length"},
		{text: "2y", refused: "no fixed length"},
		{text: "1h30", refused: "has no unit"},
		{text: "1.s", refused: "is not a duration"},
		{text: "1e3s", refused: `unknown unit "e"`},
		{text: "0.0000001ms", refused: "too fine"},
		{text: "99999999999w", refused: "too long"},
		{text: "15000w15000w15000w", refused: "too long"},
	})
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 5 * time.Millisecond: "5ms", 1500 * time.Microsecond: "1.5ms", time.Nanosecond: "0.000001ms",
		90 * time.Second: "90s", 3 * time.Hour: "3h", 36 * time.Hour: "36h", 14 * Day: "14d",
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%d ns is written %q, want %q", d, got, want)
		}
		if back, err := ParseDuration(want); err != nil || back != d {
			t.Errorf("%q is read back as %v, %v", want, back, err)
		}
	}
}

func TestParseSize(t *testing.T) {
	checkGrammar(t, ParseSize, []grammarCase[int64]{
		{text: "0", want: 0},
		{text: "512", want: 512},
		{text: "512B", want: 512},
		{text: "256KiB", want: 256 << 10},
		{text: "1.5MiB", want: 3 << 19},
		{text: "10GiB", want: 10 << 30},
		{text: "10 GiB", want: 10 << 30},
		{text: "5KB", want: 5000},
		{text: "5kB", want: 5000},
		{text: "2MB", want: 2_000_000},
		{text: "3GB", want: 3_000_000_000},
		{text: "10G", refused: "unknown unit"},
		{text: "10gib", refused: "unknown unit"},
		{text: "-1KiB", refused: "is negative"},
		{text: "KiB", refused: "is not a size"},
		{text: "", refused: "is not a size"},
		{text: "0.3B", refused: "not a whole number of bytes"},
		{text: "99999999999TiB", refused: "too large"},
	})
	for _, text := range []string{"0B", "1B", "1023B", "1KiB", "64MiB", "10GiB", "1024TiB", "5000B"} {
		if size, err := ParseSize(text); err != nil || FormatSize(size) != text {
			t.Errorf("%q is written back as %q (%v)", text, FormatSize(size), err)
		}
	}
}

func TestParseMoney(t *testing.T) {
	checkGrammar(t, ParseMoney, []grammarCase[Money]{
		{text: "0", want: 0},
		{text: "0.40", want: 400_000},
		{text: "200.00", want: 200_000_000},
		{text: "0.000125", want: 125},
		{text: "1000000000", want: mostMoney},
		{text: "1000000000.000001", refused: "is not an amount"},
		{text: "1000000001", refused: "is too much"},
		{text: "0.0000001", refused: "finer than a millionth"},
		{text: "-1", refused: "is negative"},
		{text: "$5", refused: "without currency"},
		{text: "1,000", refused: "separators"},
		{text: "1e3", refused: "is not an amount"},
		{text: ".5", refused: "is not an amount"},
		{text: "", refused: "is not an amount"},
	})
	for m, want := range map[Money]string{0: "0.00", 400_000: "0.40", 125: "0.000125", 1_230_000: "1.23", 1_200_500: "1.2005"} {
		if m.String() != want {
			t.Errorf("%d millionths are written %q, want %q", int64(m), m, want)
		}
	}
}

func TestPercent(t *testing.T) {
	checkGrammar(t, PercentIn(99), []grammarCase[int64]{
		{text: "0", want: 0},
		{text: "0%", want: 0},
		{text: "10%", want: 10},
		{text: "10 %", want: 10},
		{text: "99%", want: 99},
		{text: "100%", refused: "is out of range: write a whole number from 0% to 99%"},
		{text: "10", refused: "has no % sign"},
		{text: "2.5%", refused: "is not a whole percentage"},
		{text: "-5%", refused: "is not a whole percentage"},
		{text: "%", refused: "is not a whole percentage"},
	})
}

func TestWholeIn(t *testing.T) {
	checkGrammar(t, WholeIn(1, 100), []grammarCase[int64]{
		{text: "1", want: 1},
		{text: "100", want: 100},
		{text: "0", refused: "0 is out of range"},
		{text: "101", refused: "out of range"},
		{text: "-1", refused: "out of range"},
		{text: "+1", refused: "is not a whole number"},
		{text: "1.0", refused: "is not a whole number"},
		{text: "1_0", refused: "is not a whole number"},
		{text: "0x10", refused: "is not a whole number"},
		{text: "", refused: "is not a whole number"},
		{text: "99999999999999999999", refused: "is not a whole number"},
	})
}
