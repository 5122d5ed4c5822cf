package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"
)

// Bounds of exports and imports of whole letters. An export has one chunk in memory at a time (deadletter.Walk), an
// import one line.
const (
	exportsAtOnce = 2
	transferLasts = time.Hour        // of one export or import
	transferStall = 30 * time.Second // for a client to take or send the next piece
	mostImport    = 4 << 30          // bytes of an import
	mostKnown     = 500_000          // letters that the store has or an import brings, some 40 bytes each
	exportBuffer  = 64 << 10
)

// jsonLines is the content type of one JSON object per line.
const jsonLines = "application/jsonl"

// transfers exports and imports whole letters.
type transfers struct{ *Options }

// exportLetters sends the letters that a filter selects. It publishes an event before it sends the first.
func (t *transfers) exportLetters(w http.ResponseWriter, r *request) {
	ctx, cancel := context.WithTimeout(r.Context(), transferLasts)
	defer cancel()
	walk, err := t.beginExport(ctx, r)
	if err != nil {
		problemOf(err).Write(w)
		return
	}
	h := w.Header()
	h.Set("Content-Type", jsonLines)
	h.Set("Content-Disposition", `attachment; filename="letters-`+r.asked.UTC().Format("20060102-150405")+`.jsonl"`)
	if r.Method == http.MethodHead {
		return
	}
	if err := writeExport(ctx, http.NewResponseController(w), w, walk); err != nil {
		t.Log.Warn("an export of dead letters broke off", "by", r.who.String(), "err", t.Connection.Explain(err))
		panic(http.ErrAbortHandler) // breaks the connection, so that no client takes the answer for complete
	}
}

// beginExport bounds the selection to the letters that exist now, and publishes the event.
func (t *transfers) beginExport(ctx context.Context, r *request) (*deadletter.Walk, error) {
	f, err := chosen(r)
	if err != nil {
		return nil, err
	}
	store, err := deadview.Open(ctx, t.Connection)
	if err != nil {
		return nil, err
	}
	scope, err := store.Bound(ctx, deadletter.Selection{Filter: f})
	if err != nil {
		return nil, err
	}
	some := scope.Walk(deadletter.HeadersOnly)
	switch first, err := some.Chunk(ctx); {
	case err != nil:
		return nil, t.Connection.Explain(err)
	case len(first) == 0:
		return nil, deadview.None(f)
	}
	if r.Method != http.MethodHead {
		words := r.choice()
		selection := words.String()
		if selection == "" {
			selection = "all letters"
		}
		taken := deadletter.Event{Type: deadletter.RevealedEvent, API: f.API, Key: f.Key, Data: deadletter.RevealData{Who: r.who.String(), Selection: selection}}
		if err := taken.Publish(ctx, t.Connection.JetStream); err != nil { // without the event nothing is exported
			return nil, cli.Unreachable(fmt.Errorf("nothing is exported, because the event that records it could not be stored: %w", err))
		}
	}
	return scope.Walk(deadletter.Whole), nil
}

// writeExport writes letters until the end of the walk. It fails if the client takes no data for transferStall.
func writeExport(ctx context.Context, connection *http.ResponseController, w io.Writer, walk *deadletter.Walk) error {
	out := bufio.NewWriterSize(w, exportBuffer)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	for {
		chunk, err := walk.Chunk(ctx)
		if deadline := connection.SetWriteDeadline(time.Now().Add(transferStall)); deadline != nil {
			return errors.Join(err, deadline)
		}
		if err != nil || len(chunk) == 0 {
			return errors.Join(err, out.Flush())
		}
		for i := range chunk {
			if err := connection.SetWriteDeadline(time.Now().Add(transferStall)); err != nil {
				return err
			}
			if err := lines.Encode(deadview.Export(&chunk[i])); err != nil {
				return err
			}
			chunk[i] = deadletter.Kept{} // releases the memory of a letter that was written
		}
	}
}

// importLetters stores the letters of the request's body.
func (t *transfers) importLetters(ctx context.Context, r *request) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, transferLasts)
	defer cancel()
	store, err := deadview.Open(ctx, t.Connection)
	if err != nil {
		return nil, err
	}
	i, err := store.NewImport(ctx, mostKnown)
	if err != nil {
		return nil, t.importFailed(err, 0)
	}
	did := deadview.Imported{DryRun: r.word("dry_run") == "true"}
	err = deadview.ReadExported(&steady{r.Body, r.connection}, t.mostLine(), func(line int, letter deadletter.Copy) error {
		did.Letters = line
		if did.DryRun {
			return letter.Check()
		}
		return i.Add(ctx, letter)
	})
	if flushErr := i.Flush(ctx); err == nil {
		err = flushErr
	}
	did.Stored, did.Known = i.Stored, i.Known
	if did.Stored > 0 {
		t.Log.Info("dead letters were imported", "by", r.who.String(), "stored", did.Stored, "known", did.Known)
	}
	if err != nil {
		return nil, t.importFailed(err, did.Stored)
	}
	return did, nil
}

// mostLine bounds a line of an import, in bytes. It has room for the largest message: its body in base64, and its
// headers, of which JSON may write each byte as six.
func (t *transfers) mostLine() int { return int(t.Connection.Conn.MaxPayload())*3 + 1<<20 }

// importFailed returns the problem for an import that broke off, with the number of letters stored. An error in a line
// is the client's.
func (t *transfers) importFailed(err error, stored int) error {
	var large *http.MaxBytesError
	var exit *cli.Exit
	told := fmt.Sprintf("%s (%d were stored; send it again to go on)", t.Connection.Explain(err), stored)
	switch {
	case errors.As(err, &large):
		return console.NewProblem(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes (%d letters were stored): split it", large.Limit, stored)
	case errors.Is(err, deadletter.ErrTooManyLetters):
		return console.NewProblem(http.StatusConflict, "%s: use weir dead import, which has memory of its own", told)
	case errors.As(err, &exit), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return console.NewProblem(http.StatusServiceUnavailable, "%s", told)
	}
	return badRequest("%s", told)
}

// steady reads a body. Each piece must arrive within transferStall. After the end there is no deadline: if one passed,
// net/http would cancel the request as if the client had gone.
type steady struct {
	body       io.Reader
	connection *http.ResponseController
}

// Read implements io.Reader.
func (s *steady) Read(into []byte) (int, error) {
	if err := s.connection.SetReadDeadline(time.Now().Add(transferStall)); err != nil {
		return 0, err
	}
	n, err := s.body.Read(into)
	if errors.Is(err, io.EOF) {
		if err := s.connection.SetReadDeadline(time.Time{}); err != nil {
			return n, err
		}
	}
	return n, err
}
