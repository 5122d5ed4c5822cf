package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/ops/status"
	"weir/cmd/weir/internal/serve/admin"
	"weir/deadletter"
	"weir/dispatcher/schedule"
)

// Bounds of streams.
const (
	mostListeners  = 64
	forOperators   = 16               // of mostListeners, reserved for operators
	heldMessages   = 64               // unsent messages at which a listener is disconnected
	snapshotEvery  = time.Second      // one computation for all listeners
	heartbeatEvery = time.Second      // shows that weir runs even if a snapshot takes long
	sendTimeout    = 10 * time.Second // for one message to one listener
	streamLasts    = 15 * time.Minute // browsers reconnect, and weir checks their rights again
	comeBack       = time.Second      // until browsers reconnect
	mostMissed     = 1000             // events repeated to a listener that reconnects
	deepestKeys    = 20               // of each api in a snapshot
	snapshotAPIs   = 20               // apis with deepest keys in a snapshot: those with the most jobs
)

// Snapshot is sent to listeners each second.
type Snapshot struct {
	*status.Status

	// Deepest are the deepest buckets of each api, of those with the most jobs.
	Deepest map[string][]schedule.KeyState `json:"deepest"`
}

// message is one message of a stream.
type message struct {
	name string
	id   uint64 // sequence of an event's message; 0: not an event
	data []byte
}

// snapshotMessage is the name of the messages that are snapshots.
const snapshotMessage = "snapshot"

// hub computes the messages for all listeners. It computes nothing while there is none. It is safe for concurrent use.
type hub struct {
	*Options

	overview *overview

	mu        sync.Mutex // guards what follows
	listeners map[*listener]bool
	stop      context.CancelFunc // ends the computation; nil: no listener
	closed    bool
	running   sync.WaitGroup
	last      message // the newest snapshot, and when it was sent: a new listener receives it at once
	sent      time.Time
}

// listener is one stream.
type listener struct {
	messages chan message
	operator bool
	gone     chan struct{} // closed when the listener is too far behind, or the hub closes
}

// join adds a listener. It returns nil if there are too many, or the hub is closed.
func (h *hub) join(role console.Role) *listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &listener{messages: make(chan message, heldMessages), operator: role == console.Operator, gone: make(chan struct{})}
	if h.closed || !h.roomFor(l) {
		return nil
	}
	if h.listeners == nil {
		h.listeners = map[*listener]bool{}
	}
	h.listeners[l] = true
	if h.last.data != nil && time.Since(h.sent) < 2*snapshotEvery {
		l.messages <- h.last
	}
	if h.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		h.stop = stop
		h.running.Go(func() { h.tellSnapshots(ctx) })
		h.running.Go(func() { h.tellEvents(ctx) })
	}
	return l
}

// roomFor reports whether l may join.
func (h *hub) roomFor(l *listener) bool {
	if len(h.listeners) >= mostListeners {
		return false
	}
	others := 0
	for has := range h.listeners {
		if !has.operator {
			others++
		}
	}
	return l.operator || others < mostListeners-forOperators
}

func (h *hub) leave(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners, l)
	if len(h.listeners) == 0 && h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	for l := range h.listeners {
		delete(h.listeners, l)
		close(l.gone)
	}
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
	h.mu.Unlock()
	h.running.Wait()
}

// tell queues a message for all listeners. It disconnects a listener with heldMessages unsent messages. That one
// reconnects, and serve then sends the events that it missed.
func (h *hub) tell(m message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.name == snapshotMessage {
		h.last, h.sent = m, time.Now()
	}
	for l := range h.listeners {
		select {
		case l.messages <- m:
		default:
			delete(h.listeners, l)
			close(l.gone)
		}
	}
}

func (h *hub) tellSnapshots(ctx context.Context) {
	tick := time.NewTicker(snapshotEvery)
	defer tick.Stop()
	for {
		if s, err := h.snapshot(ctx); err == nil {
			h.tellJSON(snapshotMessage, s)
		} else if ctx.Err() == nil {
			h.tellJSON("problem", problemOf(err))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (h *hub) tellJSON(name string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic("a message that JSON cannot carry: " + err.Error())
	}
	h.tell(message{name: name, data: data})
}

func (h *hub) tellEvents(ctx context.Context) {
	f := deadletter.EventFilter{}
	for ctx.Err() == nil {
		err := deadletter.FollowEvents(ctx, h.Connection.JetStream, f, func(e deadletter.KeptEvent) error {
			h.tell(message{"event", e.Seq, e.JSON})
			return ctx.Err()
		})
		if err != nil && ctx.Err() == nil {
			h.Log.Debug("cannot follow the events; trying again", "err", err)
		}
		stream.Sleep(ctx, snapshotEvery)
	}
}

// snapshot returns the present state of weir, with the deepest buckets.
func (h *hub) snapshot(ctx context.Context) (*Snapshot, error) {
	s, err := h.overview.now(ctx)
	if err != nil {
		return nil, err
	}
	snap := &Snapshot{Status: s, Deepest: map[string][]schedule.KeyState{}}
	busy := slices.Clone(s.APIs)
	slices.SortStableFunc(busy, func(x, y *status.API) int { return y.Jobs - x.Jobs })
	for _, api := range busy[:min(len(busy), snapshotAPIs)] {
		if api.Jobs == 0 {
			continue
		}
		g, err := admin.KeysPage(h.Connection, api.API, admin.KeysQuery{Limit: deepestKeys})
		if err != nil {
			continue // the rest is useful without this api's keys
		}
		snap.Deepest[api.API] = g.Buckets
	}
	return snap, nil
}

// serve sends messages to one listener until it disconnects, is too slow, or streamLasts is over.
func (h *hub) serve(w http.ResponseWriter, r *request) {
	after, err := lastEvent(r)
	if err != nil {
		problemOf(err).Write(w)
		return
	}
	l := h.join(r.who.Role)
	if l == nil {
		p := console.NewProblem(http.StatusServiceUnavailable, "too many streams are open: close one")
		p.RetryAfter = streamLasts
		p.Write(w)
		return
	}
	defer h.leave(l)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // switches off buffering in nginx
	s := sender{w: w, control: http.NewResponseController(w), last: after}
	if !s.send(fmt.Sprintf("retry: %d\n\n", comeBack.Milliseconds())) {
		return
	}
	if r.Header.Get("Last-Event-ID") != "" && !h.tellMissed(r.Context(), &s) {
		return
	}
	s.tellAll(r.Context(), l)
}

// lastEvent returns the newest event that the listener has received before, 0 for none.
func lastEvent(r *request) (uint64, error) {
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		return 0, nil
	}
	seq, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return 0, badRequest("Last-Event-ID %q is not the id of an event", id)
	}
	return seq, nil
}

// tellMissed sends the events after s.last, at most the newest mostMissed. It reports whether the stream can go on.
func (h *hub) tellMissed(ctx context.Context, s *sender) bool {
	var missed []message
	_, err := deadletter.NewestEvents(ctx, h.Connection.JetStream, deadletter.EventFilter{}, mostMissed, func(e deadletter.KeptEvent) error {
		if e.Seq <= s.last {
			return stream.ErrEnough
		}
		missed = append(missed, message{"event", e.Seq, e.JSON})
		return nil
	})
	if err != nil && !errors.Is(err, deadletter.ErrNoEvents) {
		h.Log.Debug("cannot report missed events", "err", err)
	}
	for _, m := range slices.Backward(missed) {
		if !s.tell(m) {
			return false
		}
	}
	return true
}

// sender writes the stream of one listener.
type sender struct {
	w       http.ResponseWriter
	control *http.ResponseController
	last    uint64 // the last event sent
}

func (s *sender) tellAll(ctx context.Context, l *listener) {
	end, beat := time.NewTimer(streamLasts), time.NewTicker(heartbeatEvery)
	defer end.Stop()
	defer beat.Stop()
	for {
		more := true
		select {
		case m := <-l.messages:
			more = s.tell(m)
		case <-beat.C:
			more = s.send("event: here\ndata: {}\n\n")
		case <-end.C:
			return
		case <-l.gone:
			return
		case <-ctx.Done():
			return
		}
		if !more {
			return
		}
	}
}

// tell writes a message, unless it is an event that the listener already has.
func (s *sender) tell(m message) bool {
	text := "event: " + m.name + "\n"
	if m.id > 0 {
		if m.id <= s.last {
			return true
		}
		s.last = m.id
		text += "id: " + strconv.FormatUint(m.id, 10) + "\n"
	}
	return s.send(text + "data: " + string(m.data) + "\n\n") // JSON has no line break
}

func (s *sender) send(text string) bool {
	if s.control.SetWriteDeadline(time.Now().Add(sendTimeout)) != nil {
		return false
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return false
	}
	return s.control.Flush() == nil
}
