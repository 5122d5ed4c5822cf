package deadletter

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"weir/bucket/stream"
	"weir/ingest"
)

// An exported letter can be stored again, on the same server or on another, as a letter and never as a job. Its
// subject, headers and body stay the same to the byte. A stream assigns the sequence and the time itself, and cannot be
// told which message ids it should know. So the message gets an id of its own, and HeaderImported holds the time and
// the message id of the original letter. Readers of letters see the original ones.

// HeaderImported holds when an imported letter was first stored, and its message id then. readLetter removes the
// header.
const HeaderImported = "Weir-Dead-Imported"

// importPrefix begins the message ids of imported letters.
const importPrefix = "import."

// Copy is a letter in its exported form.
type Copy struct {
	Stored  time.Time
	Subject string
	Header  nats.Header
	Body    []byte
}

// FirstStored returns when a letter was first stored. For an imported letter this is by the clock of the server that it
// came from.
func (k *Kept) FirstStored() time.Time {
	if !k.Imported.IsZero() && k.Imported.Before(k.Stored) {
		return k.Imported
	}
	return k.Stored
}

// unfold returns the headers of a letter as they were before its import, and when it was stored then. The time is zero
// if the letter was not imported.
func unfold(h nats.Header) (nats.Header, time.Time) {
	stamp, id, _ := strings.Cut(h.Get(HeaderImported), " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil || !strings.HasPrefix(h.Get(ingest.HeaderMsgID), importPrefix) {
		return h, time.Time{}
	}
	h = maps.Clone(h)
	delete(h, HeaderImported)
	delete(h, ingest.HeaderMsgID)
	if id != "" {
		h[ingest.HeaderMsgID] = []string{id}
	}
	return h, at
}

// copyID identifies a letter on any server. It has 16 bytes, so that many fit in memory.
type copyID [16]byte

// identifyCopy hashes the letter's time, subject and headers, and the size of its body. Two different letters would
// need all of these in common, to the nanosecond, to collide.
func identifyCopy(stored time.Time, subject string, h nats.Header, size int) (id copyID) {
	sum := sha256.New()
	part := func(text string) {
		_ = binary.Write(sum, binary.BigEndian, uint64(len(text))) // a hash takes all
		_, _ = io.WriteString(sum, text)
	}
	part(strconv.FormatInt(stored.UnixNano(), 10))
	part(subject)
	part(strconv.Itoa(size))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if name == headerSize {
			continue
		}
		part(name)
		part(strconv.Itoa(len(h[name])))
		for _, value := range h[name] {
			part(value)
		}
	}
	copy(id[:], sum.Sum(nil))
	return id
}

// Check returns an error if a copy cannot be stored as a letter.
func (c *Copy) Check() error {
	tokens := strings.Split(c.Subject, ".")
	if len(tokens) != 5 || tokens[0] != "weir" || tokens[1] != "dead" || !slices.Contains(Reasons(), Reason(tokens[3])) {
		return fmt.Errorf("subject %q is not weir.dead.<api>.<reason>.<key>", c.Subject)
	}
	for _, token := range []string{tokens[2], tokens[4]} {
		if _, err := ingest.ParseToken(token); err != nil {
			return fmt.Errorf("subject %q: %w", c.Subject, err)
		}
	}
	if c.Stored.IsZero() {
		return errors.New("it does not say when it was stored")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Header)) { // so that the same copy always gets the same error
		values := c.Header[name]
		if name == HeaderImported || name == ingest.HeaderMsgID && len(values) > 1 {
			return fmt.Errorf("header %s cannot be that of an exported letter", name)
		}
		if name == "" || strings.ContainsAny(name, ": \t\r\n") {
			return fmt.Errorf("%q is no name of a header", name)
		}
		if strings.HasPrefix(strings.ToLower(name), "nats-") && name != ingest.HeaderMsgID {
			return fmt.Errorf("header %s is an order to the server, not a letter's", name)
		}
		for _, value := range values {
			if strings.ContainsAny(value, "\r\n") || textproto.TrimString(value) != value {
				return fmt.Errorf("header %s has a value that no message can carry", name)
			}
		}
	}
	return nil
}

// publication returns the message that stores the copy under a message id.
func (c *Copy) publication(id string) *nats.Msg {
	h := maps.Clone(c.Header)
	if h == nil {
		h = nats.Header{}
	}
	h[HeaderImported] = []string{textproto.TrimString(c.Stored.UTC().Format(time.RFC3339Nano) + " " + c.Header.Get(ingest.HeaderMsgID))}
	h[ingest.HeaderMsgID] = []string{id}
	return &nats.Msg{Subject: c.Subject, Header: h, Data: c.Body}
}

// Bounds of an import.
const (
	importAtOnce = 256 // letters that are being stored
	// MostImported bounds the letters whose identities an import holds in memory: 16 bytes and a map entry each.
	MostImported = 5_000_000
)

// ErrTooManyLetters reports that an import would have to hold the identities of too many letters.
var ErrTooManyLetters = errors.New("there are too many letters to tell new ones from them")

// Import stores exported letters in the stream. It is not safe for concurrent use.
type Import struct {
	browser *Browser
	known   map[copyID]struct{}
	most    int // of known
	waiting []sentCopy

	Stored int // letters stored so far
	Known  int // letters that the stream already had
}

type sentCopy struct {
	copy Copy
	ack  jetstream.PubAckFuture
}

// NewImport reads which letters the stream has. It blocks until it has read all. It fails with ErrTooManyLetters if
// there are more than most. Letters that Add adds count too.
func (b *Browser) NewImport(ctx context.Context, most int) (*Import, error) {
	i := &Import{browser: b, known: map[copyID]struct{}{}, most: most}
	scope, err := b.Scope(ctx, Selection{})
	if err != nil {
		return nil, err
	}
	walk := scope.Walk(HeadersOnly)
	for {
		chunk, err := walk.Chunk(ctx)
		if err != nil || len(chunk) == 0 {
			return i, err
		}
		for at := range chunk {
			k := &chunk[at]
			stored := k.Stored
			if !k.Imported.IsZero() {
				stored = k.Imported
			}
			if err := i.note(identifyCopy(stored, k.Published, k.Header, k.Size)); err != nil {
				return nil, err
			}
		}
	}
}

func (i *Import) note(id copyID) error {
	if len(i.known) >= i.most {
		return fmt.Errorf("%w: more than %d", ErrTooManyLetters, i.most)
	}
	i.known[id] = struct{}{}
	return nil
}

// Add stores one letter unless the stream already has it. It may return before the letter is stored: call Flush. It
// fails if c is not a letter, or if an earlier letter could not be stored.
func (i *Import) Add(ctx context.Context, c Copy) error {
	if err := c.Check(); err != nil {
		return err
	}
	id := identifyCopy(c.Stored, c.Subject, c.Header, len(c.Body))
	if _, known := i.known[id]; known {
		i.Known++
		return nil
	}
	if err := i.note(id); err != nil {
		return err
	}
	ack, err := i.browser.js.PublishMsgAsync(c.publication(fmt.Sprintf("%s%x", importPrefix, id)))
	if err != nil {
		return fmt.Errorf("store a letter: %w", err)
	}
	if i.waiting = append(i.waiting, sentCopy{c, ack}); len(i.waiting) >= importAtOnce {
		return i.settle(ctx)
	}
	return nil
}

// Flush waits until all added letters are stored.
func (i *Import) Flush(ctx context.Context) error {
	for len(i.waiting) > 0 {
		if err := i.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until the oldest letter that is being stored is stored, or ctx ends.
func (i *Import) settle(ctx context.Context) error {
	sent := i.waiting[0]
	i.waiting = i.waiting[1:]
	select {
	case ack := <-sent.ack.Ok():
		if !ack.Duplicate {
			i.Stored++
			return nil
		}
		return i.again(ctx, sent.copy, ack.Sequence)
	case err := <-sent.ack.Err():
		return fmt.Errorf("store a letter: %w", err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// again stores a letter whose message id the stream knows, unless the stream still has that letter. It may have been
// purged since an earlier import.
func (i *Import) again(ctx context.Context, c Copy, seq uint64) error {
	there, err := i.browser.Get(ctx, seq)
	switch {
	case err == nil && there.Published == c.Subject:
		i.Known++
		return nil
	case err != nil && !errors.Is(err, ErrNoLetter):
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, stream.AnswerWait)
	defer cancel()
	if _, err := i.browser.js.PublishMsg(waiting, c.publication(importPrefix+nuid.Next())); err != nil {
		return fmt.Errorf("store a letter: %w", err)
	}
	i.Stored++
	return nil
}
