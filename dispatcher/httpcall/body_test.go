package httpcall

import (
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"weir/ingest"

	"pgregory.net/rapid"
)

// TestFindUnits compares what findUnits finds while it reads with what the whole text says.
func TestFindUnits(t *testing.T) {
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		return rapid.Custom(func(t *rapid.T) any {
			kind := rapid.IntRange(0, 6).Draw(t, "kind")
			if depth == 0 {
				kind %= 5
			}
			switch kind {
			case 0:
				return rapid.Int64Range(-3, 1<<60).Draw(t, "number")
			case 1:
				return rapid.SampledFrom([]any{nil, true, 1.5, "7", "a", 1e30}).Draw(t, "other")
			case 5:
				return rapid.SliceOfN(value(depth-1), 0, 4).Draw(t, "array")
			case 6:
				return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "0", "1", "", "x/y", "x~y"}), value(depth-1), 0, 4).Draw(t, "object")
			}
			return rapid.Int64Range(0, 9).Draw(t, "digit")
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		text, err := json.Marshal(value(4).Draw(t, "value"))
		if err != nil {
			t.Fatal(err)
		}
		part := rapid.SampledFrom([]string{"", "a", "b", "0", "1", "x~1y", "x~0y"})
		pointers := rapid.SliceOfNDistinct(rapid.Map(rapid.SliceOfN(part, 0, 4), func(parts []string) string {
			pointer := ""
			for _, p := range parts {
				pointer += "/" + p
			}
			return pointer
		}), 1, 5, rapid.ID).Draw(t, "pointers")
		found := findUnits(iotest.OneByteReader(strings.NewReader(string(text))), pointers)
		for _, pointer := range pointers {
			want, told := int64(0), false
			if value, err := ingest.Pointed(text, pointer); err == nil {
				if number, ok := value.(json.Number); ok {
					want, err = strconv.ParseInt(number.String(), 10, 64)
					told = (err == nil || errors.Is(err, strconv.ErrRange)) && want >= 0
				}
			}
			if got, ok := found[pointer]; ok != told || told && got != want {
				t.Fatalf("%s at %q: found %d %v, want %d %v", text, pointer, got, ok, want, told)
			}
		}
	})
}

// TestLongStrings checks that a search finds what stands behind long strings and behind names that are nearly named,
// wherever an escape sequence falls.
func TestLongStrings(t *testing.T) {
	name := strings.Repeat("n", 40)
	for size := maxToken - 20; size < maxToken+len(name)+20; size++ {
		for _, char := range []string{"x", `\"`, `\\`, `\u0022`, "€"} {
			long := strings.Repeat("y", size) + strings.Repeat(char, 20)
			text := `{"` + long + `":1, "` + strings.Repeat(`\u006e`, len(name)) + `":  {"a":"` + long + `","b":7}}`
			got := findUnits(strings.NewReader(text), []string{"/" + name + "/b", "/y"})
			if len(got) != 1 || got["/"+name+"/b"] != 7 {
				t.Fatalf("behind %d bytes and %q: %v", size, char, got)
			}
		}
	}
}

// TestReadBody checks what is kept, whether there was more, which units behind it are found, and whether the
// answer counts as broken off.
func TestReadBody(t *testing.T) {
	long := `{"text":"` + strings.Repeat("x", 100) + `","n":7}`
	huge := `{"text":"` + strings.Repeat("x", maxTold) + `","n":7}`
	broken := func(text string) io.Reader {
		return io.MultiReader(strings.NewReader(text), iotest.ErrReader(errors.New("reset")))
	}
	for _, c := range []struct {
		what      string
		body      io.Reader
		most      int64
		kept      int
		more, cut bool
		reported  bool
	}{
		{"all kept", strings.NewReader(long), 1000, len(long), false, false, true},
		{"exactly as much as is kept", strings.NewReader(long), int64(len(long)), len(long), false, false, true},
		{"some kept", strings.NewReader(long), 50, 50, true, false, true},
		{"nothing kept", strings.NewReader(long), 0, 0, true, false, true},
		{"nothing there", strings.NewReader(""), 50, 0, false, false, false},
		{"no JSON", strings.NewReader(strings.Repeat("x", 100)), 50, 50, true, false, false},
		{"more than is read", strings.NewReader(huge), 50, 50, true, false, false},
		{"broken off in what is kept", broken(long[:40]), 50, 40, false, true, false},
		{"broken off behind it", broken(long[:80]), 50, 50, true, false, false},
		{"broken off exactly at its end", broken(long[:50]), 50, 50, true, false, false},
	} {
		r, told := readBody(io.NopCloser(c.body), document, c.most, []string{"/n"})
		if len(r.kept) != c.kept || r.more != c.more || (r.err != nil) != c.cut || (told["/n"] == 7) != c.reported {
			t.Errorf("%s: kept %d, more %v, told %v, %v", c.what, len(r.kept), r.more, told, r.err)
		}
	}
	const bound = 1 << 20 // bytes
	for what, text := range map[string]string{"a long string": huge, "long space": strings.Repeat(" ", maxTold), "a long number": strings.Repeat("7", maxTold)} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = readBody(io.NopCloser(strings.NewReader(text)), document, 50, []string{"/n"})
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > bound {
			t.Errorf("%s: reading %d bytes took %d bytes of memory", what, len(text), used)
		}
	}
	deep := findUnits(strings.NewReader(strings.Repeat("[", 1<<20)), []string{"/0"})
	if len(deep) != 0 {
		t.Errorf("found %v", deep)
	}
}
