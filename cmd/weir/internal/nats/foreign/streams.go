package foreign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/ingest"
)

// jobSubjects are the subjects to which producers publish. No stream may take them, because a stream acknowledges a job
// before weir answers. That hides weir's refusals, and while no weir runs the stream acknowledges jobs that will never
// be called.
const jobSubjects = ingest.SubjectPrefix + ">"

// Bounds of listing foreign streams.
const (
	foreignTimeout  = 10 * time.Second
	describeTimeout = 2 * time.Second // for the description of one stream
	mostForeign     = 8               // how many streams are described; more are only counted
)

// Stream is a foreign stream that takes weir's subjects.
type Stream struct {
	Name     string   `json:"name"`
	Subjects []string `json:"subjects,omitempty"` // the conflicting subjects; empty if the server does not tell
	Messages uint64   `json:"messages"`           // number of messages in the stream, some of which may be jobs
}

// String returns the name of the stream, its conflicting subjects and its number of messages.
func (s Stream) String() string {
	text := s.Name
	if len(s.Subjects) > 0 {
		text += " (subjects " + strings.Join(s.Subjects, ", ") + ")"
	}
	if s.Messages > 0 {
		text += " with " + cli.Count(s.Messages, "message")
	}
	return text
}

// Streams are the foreign streams found by one listing, sorted by name.
type Streams []Stream

// String describes the first eight streams, and counts the others.
func (f Streams) String() string {
	names := make([]string, 0, min(len(f), mostForeign)+1)
	for _, s := range f[:min(len(f), mostForeign)] {
		names = append(names, s.String())
	}
	if more := len(f) - mostForeign; more > 0 {
		names = append(names, cli.Count(more, "more stream"))
	}
	return strings.Join(names, ", ")
}

// err returns an error that says how the streams harm producers, and the remedy; nil if there is no stream.
func (f Streams) err() error {
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("%s under %s: their producers are answered before weir does, so that refusals are hidden and, while no weir runs, jobs are acknowledged and never called: change its subjects or remove it (nats stream edit, nats stream rm), and look what it holds: %s",
		cli.Verb(len(f), "a stream that is not weir's takes jobs", "streams that are not weir's take jobs"), jobSubjects, f)
}

// streamsOver returns the streams with a subject that overlaps one of the patterns. It leaves out the streams for which
// own returns true. A mirror or source without subjects of its own does not count.
func streamsOver(ctx context.Context, js jetstream.JetStream, own func(name string) bool, patterns ...string) (Streams, error) {
	listing, cancel := context.WithTimeout(ctx, foreignTimeout)
	defer cancel()
	var names []string
	for _, pattern := range patterns {
		list := js.StreamNames(listing, jetstream.WithStreamListSubject(pattern))
		for name := range list.Name() {
			if !own(name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
			return nil, fmt.Errorf("list the streams over %s: %w", pattern, err)
		}
	}
	slices.Sort(names)
	var found Streams
	for _, name := range names {
		s, listens := Stream{Name: cli.Visible(name)}, true
		if len(found) < mostForeign {
			s, listens = describeForeign(ctx, js, name, patterns)
		}
		if listens {
			found = append(found, s)
		}
	}
	return found, nil
}

// describeForeign asks a stream for its subjects. If the server does not tell them, only the name is known. listens is
// false if the stream has gone since it was listed, or no longer has an overlapping subject.
func describeForeign(ctx context.Context, js jetstream.JetStream, name string, patterns []string) (s Stream, listens bool) {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	s = Stream{Name: cli.Visible(name)}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return s, !errors.Is(err, jetstream.ErrStreamNotFound)
	}
	info := stream.CachedInfo()
	s.Messages = info.State.Msgs
	for _, subject := range info.Config.Subjects {
		if slices.ContainsFunc(patterns, func(pattern string) bool { return connect.Overlaps(subject, pattern) }) {
			s.Subjects = append(s.Subjects, cli.Visible(subject))
		}
	}
	return s, len(s.Subjects) > 0
}

// nobodysOwn is the argument own of streamsOver for subjects that no stream may take.
func nobodysOwn(string) bool { return false }

// weirsOwn reports whether the name of a stream is one that weir uses.
func weirsOwn(name string) bool {
	return strings.HasPrefix(name, "WEIR_") || strings.HasPrefix(name, "KV_weir_")
}

// ExplainOverlap adds the names of the streams that conflict with weir's own to err, if err is JetStream's error about
// overlapping subjects. It returns any other error unchanged.
func ExplainOverlap(js jetstream.JetStream, err error) error {
	var api *jetstream.APIError
	if js == nil || !errors.As(err, &api) || api.ErrorCode != codeOverlap {
		return err
	}
	patterns := []string{"weir.q.>", "weir.o.>", "weir.dead.>", "weir.events.>", "weir.results.>", "weir.calls.>"}
	for _, kv := range []string{connect.ConfigBucket, connect.ControlBucket, connect.LeasesBucket} {
		patterns = append(patterns, "$KV."+kv+".>")
	}
	// A context of its own, because that of the start may have ended.
	found, lookErr := streamsOver(context.Background(), js, weirsOwn, patterns...)
	if lookErr != nil || len(found) == 0 {
		return err
	}
	return fmt.Errorf("%s in the way: change its subjects or remove it (nats stream edit, nats stream rm); %w", found, err)
}

// codeOverlap is JetStream's error code for a stream with a subject that another stream already has.
const codeOverlap = 10065
