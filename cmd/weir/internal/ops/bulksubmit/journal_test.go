package bulksubmit

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestOpenJournalSparesOtherFiles checks that a file that is no journal is refused and left unchanged, even with
// forget. A last line that a kill has cut is no reason to refuse.
func TestOpenJournalSparesOtherFiles(t *testing.T) {
	one := "1767366245000 taken 00112233445566778899aabbccddeeff\n"
	for _, c := range []struct {
		name, text  string
		ok, forgets bool
	}{
		{name: "jobs", text: `{"key":"k","body":1}` + "\n"},
		{name: "jobs, to be forgotten", text: `{"key":"k","body":1}` + "\n", forgets: true},
		{name: "a line without its end", text: "s3cr3t-token"},
		{name: "a line without its end, to be forgotten", text: "s3cr3t-token", forgets: true},
		{name: "a line without any end soon", text: strings.Repeat("0", 1<<20)},
		{name: "another file's end", text: one + "Yours, Anna"},
		{name: "nothing", ok: true},
		{name: "a journal", text: one, ok: true},
		{name: "a journal, to be forgotten", text: one, forgets: true, ok: true},
		{name: "a journal that was cut", text: one + one[:20], ok: true},
		{name: "a journal whose first line was cut", text: one[:5], ok: true},
		{name: "a damaged journal, to be forgotten", text: one + "?\n", forgets: true, ok: true},
	} {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := OpenJournal(path, c.forgets)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil {
			if known := len(j.last); (known == 0) != (c.forgets || len(c.text) < len(one)) {
				t.Errorf("%s: %d jobs are known", c.name, known)
			}
			if err := j.Close(); err != nil {
				t.Error(err)
			}
			continue
		}
		if text, err := os.ReadFile(path); err != nil || !bytes.Equal(text, []byte(c.text)) {
			t.Errorf("%s: it is %.40q now, %v", c.name, text, err)
		}
	}
}

// TestJournalHasOneRun checks that a second run is refused a journal that a first one has open.
func TestJournalHasOneRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	first, err := OpenJournal(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenJournal(path, true); !errors.Is(err, errInUse) {
		t.Errorf("a second run opens it: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := OpenJournal(path, false)
	if err != nil {
		t.Fatalf("after the first run: %v", err)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}

// TestNoDeviceIsAJournal checks that a device is refused, because it may have no end.
func TestNoDeviceIsAJournal(t *testing.T) {
	if _, err := os.Stat("/dev/zero"); err != nil {
		t.Skip("no /dev/zero")
	}
	for _, forget := range []bool{false, true} {
		refused := make(chan error, 1)
		go func() {
			_, err := OpenJournal("/dev/zero", forget)
			refused <- err
		}()
		select {
		case err := <-refused:
			if err == nil {
				t.Error("/dev/zero is a journal")
			}
		case <-time.After(time.Minute):
			t.Fatal("/dev/zero is read and read")
		}
	}
}

// zeros is a reader without an end and without lines.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestLinesEnd checks that an endless line ends the reading, and that a line which is only too long does not.
func TestLinesEnd(t *testing.T) {
	if _, err := ReadLines(zeros{}, Defaults{}).Next(); err == nil {
		t.Error("zeros without end are lines")
	}
	long := ReadLines(strings.NewReader(strings.Repeat("a", 2*MaxLine)+"\n"+`{"api":"a","key":"k","body":1}`+"\n"), Defaults{})
	if line, err := long.Next(); err != nil || line.Err == nil {
		t.Errorf("a line that is too long: %v, %v", line.Err, err)
	}
	if line, err := long.Next(); err != nil || line.Err != nil {
		t.Errorf("the line behind it: %v, %v", line.Err, err)
	}
}
