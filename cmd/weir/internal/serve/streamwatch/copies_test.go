package streamwatch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/serve/admin"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// newCopyWatch returns a CopyWatch of streams, and its log.
func newCopyWatch(js jetstream.JetStream, streams ...string) (*CopyWatch, *bytes.Buffer) {
	var log bytes.Buffer
	return NewCopyWatch(CopyOptions{
		JetStream: js, Streams: func() []string { return streams }, Log: slog.New(slog.NewTextHandler(&log, nil)),
	}), &log
}

// found lets w have found what a leader says at two looks.
func (w *CopyWatch) found(order int, name string, at time.Time, info *jetstream.StreamInfo) {
	c := copies{order: order, asked: at}
	for range 2 {
		c.judge(info, at)
	}
	w.remember(info.Cluster)
	w.streams[name] = c
}

// TestLackingNamesServers checks what a CopyWatch reports: by a server's id, with its last known name, with how many of
// its copies are behind, and whether another server lacks a copy too.
func TestLackingNamesServers(t *testing.T) {
	t.Parallel()
	w, log := newCopyWatch(nil)
	at := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	unknown := "Server name unknown at this time (peerID: "
	n1 := peer{Name: "n1", Peer: "p1", Current: true}
	w.found(1, "A", at, infoOf(1, n1, peer{Name: "n2", Peer: "p2"}))
	w.found(0, "B", at.Add(time.Minute), infoOf(1, n1, peer{Name: unknown + "p2)", Peer: "p2", Offline: true}))
	w.found(2, "C", at, infoOf(1, peer{Name: unknown + "p3)", Peer: "p3"}, peer{Name: unknown + "p2)", Peer: "p2"}))
	w.found(3, "D", at, infoOf(1, peer{Name: "n9"}, peer{Name: "n8", Current: true})) // of a server that tells no ids
	w.log()
	got, err := json.Marshal(w.Lacking())
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"server":"n9","since":"2030-01-02T12:00:00Z","count":1,"streams":[{"stream":"D","current":2,"copies":3}]},` +
		`{"server":"n2","peer":"p2","since":"2030-01-02T12:00:00Z","offline":true,"others":true,"count":3,"streams":[` +
		`{"stream":"B","current":2,"copies":3},{"stream":"A","current":2,"copies":3},{"stream":"C","current":1,"copies":3}]},` +
		`{"server":"","peer":"p3","since":"2030-01-02T12:00:00Z","others":true,"count":1,"streams":[{"stream":"C","current":1,"copies":3}]}]`
	if string(got) != want {
		t.Errorf("found %s, want %s", got, want)
	}
	if text := log.String(); strings.Count(text, "weir status says what to do") != 3 || strings.Contains(text, "empty") {
		t.Errorf("the log: %s", text)
	}

	w.streams, w.told = map[string]copies{}, nil
	c := copies{}
	for i, lag := range []uint64{9, 8, 7, 7} {
		c.judge(infoOf(1, n1, peer{Name: "n2", Peer: "p2", Active: time.Second, Lag: lag}), at.Add(time.Duration(i)*10*time.Second))
	}
	w.streams["A"] = c
	if l := w.Lacking(); len(l) != 1 || l[0].Behind != 1 || l[0].Others || l[0].Streams[0].Lag != 7 {
		t.Errorf("a copy that is behind: %+v", l)
	}
}

// TestCountWaits checks that streams are counted only when they have lacked a copy for ten minutes, so that servers
// that are restarted one after the other do not add up.
func TestCountWaits(t *testing.T) {
	t.Parallel()
	w, _ := newCopyWatch(nil)
	lacks := infoOf(1, peer{Name: "n1", Peer: "p1", Current: true}, peer{Name: "n2", Peer: "p2"})
	w.found(0, "A", time.Now().Add(-admin.CatchesUp+time.Minute), lacks)
	if n := w.Count(); n != 0 {
		t.Errorf("after nine minutes %d streams lack a copy", n)
	}
	w.found(1, "B", time.Now().Add(-admin.CatchesUp), lacks)
	if n := w.Count(); n != 1 {
		t.Errorf("after ten minutes %d streams lack a copy", n)
	}
}

// asking notes for which streams it is asked.
type asking struct {
	jetstream.JetStream
	asked []string
}

func (a *asking) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	a.asked = append(a.asked, name)
	return a.JetStream.Stream(ctx, name)
}

// TestLackingStreamsAreAskedFirst checks that a look begins with the streams that lack something, for at most half of
// its requests, and continues in the list where the look before ended.
func TestLackingStreamsAreAskedFirst(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprint("S", i))
	}
	js := &asking{JetStream: natstest.JetStream(t)}
	w, _ := newCopyWatch(js, names...)
	for i := 100; i < 150; i++ {
		w.found(i, names[i], time.Unix(int64(1000-i), 0), infoOf(1, peer{Name: "n2", Peer: "p2"}))
	}
	w.streams["removed"] = w.streams["S100"]
	w.Look(t.Context())
	first, rest := js.asked[:mostAsked/2], js.asked[mostAsked/2:]
	if first[0] != "S149" || first[31] != "S118" || !slices.Equal(rest, names[:mostAsked/2]) {
		t.Errorf("the first look asks for %v", js.asked)
	}
	if _, there := w.streams["removed"]; there || len(w.streams) != 50 { // the server has none, which may be an error
		t.Errorf("%d streams are left", len(w.streams))
	}
	js.asked = nil
	w.Look(t.Context())
	if len(js.asked) != mostAsked || js.asked[0] != "S117" || js.asked[18] != "S149" || !slices.Equal(js.asked[32:], names[32:64]) {
		t.Errorf("the second look asks for %v", js.asked)
	}
	if len(w.streams) != 50-14 {
		t.Errorf("after two looks at 14 streams that are gone, %d of 50 are left", len(w.streams))
	}
}

// TestStreamWithoutLeader checks that a stream whose leader does not answer at two looks is reported, until it has a
// leader. The requests reach a real server through another subject, where the leader is taken out of the answers.
func TestStreamWithoutLeader(t *testing.T) {
	t.Parallel()
	js := natstest.JetStream(t)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "there", Subjects: []string{"there"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Conn().Subscribe("electing.STREAM.INFO.*", func(m *nats.Msg) {
		reply, err := js.Conn().Request("$JS.API"+m.Subject[len("electing"):], m.Data, stream.AnswerWait)
		if err != nil {
			return // the look finds no answer
		}
		var answer map[string]any
		if err := json.Unmarshal(reply.Data, &answer); err != nil {
			t.Error(err)
		}
		answer["cluster"] = map[string]any{"name": "c"}
		if data, err := json.Marshal(answer); err == nil {
			_ = m.Respond(data)
		}
	}); err != nil {
		t.Fatal(err)
	}
	electing, err := jetstream.NewWithAPIPrefix(js.Conn(), "electing")
	if err != nil {
		t.Fatal(err)
	}
	w, log := newCopyWatch(stream.FromLeader(electing), "there")
	w.Look(t.Context())
	if l := w.Lacking(); len(l) != 0 {
		t.Errorf("after one look: %+v", l)
	}
	w.Look(t.Context())
	if l := w.Lacking(); len(l) != 1 || !l[0].Leaderless || l[0].Count != 1 || l[0].Streams[0].Stream != "there" {
		t.Errorf("after two looks: %+v", l)
	}
	if w.countBefore(time.Now()) != 1 {
		t.Error("the stream is not counted")
	}
	nothing, err := jetstream.NewWithAPIPrefix(js.Conn(), "nothing")
	if err != nil {
		t.Fatal(err)
	}
	w.JetStream = stream.FromLeader(nothing)
	w.Look(t.Context())
	if n := w.countBefore(time.Now()); n != 0 || strings.Contains(log.String(), "any more") {
		t.Errorf("without an answer %d streams are counted, or the log says that they have leaders: %s", n, log)
	}
	w.JetStream = stream.FromLeader(electing)
	w.Look(t.Context())
	if l := w.Lacking(); len(l) != 0 {
		t.Errorf("after one look at what may be another election: %+v", l)
	}
	w.Look(t.Context())
	w.JetStream = stream.FromLeader(js)
	w.Look(t.Context())
	if l := w.Lacking(); len(l) != 0 {
		t.Errorf("with a leader: %+v", l)
	}
	if text := log.String(); !strings.Contains(text, "streams have no leader") || !strings.Contains(text, "no stream lacks a leader any more") {
		t.Errorf("the log: %s", text)
	}
}
