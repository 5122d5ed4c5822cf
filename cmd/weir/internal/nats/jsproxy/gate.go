package jsproxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"weir/cmd/weir/internal/nats/connect"

	"github.com/nats-io/nats.go"
)

// Gate answers requests of readers until it is closed.
type Gate struct {
	nc    *nats.Conn // a connection in the account with the streams
	creds string     // path of the operators' credentials; empty: the gate does not tell clients
	log   *slog.Logger
	subs  []*nats.Subscription

	mu   sync.Mutex
	ours map[string]time.Time // by <stream>.<consumer>: when JetStream last said that it is a reader's consumer
}

// Bounds of the gate.
const (
	answerWait    = 5 * time.Second  // for one answer of JetStream
	mostWaiting   = 4096             // the most requests that may wait; further ones are dropped
	mostBytes     = 16 << 20         // the most bytes of these
	mostRemembers = 10_000           // the most readers' consumers that are known without asking JetStream,
	rememberedFor = 10 * time.Second // and for how long: another user may reuse a name
	mostSubject   = 2 << 10          // the most bytes of a request's subject: a stream, a consumer, and subjects of messages
	// MostAsked bounds the bytes of a request for a consumer. The server compares filters with each other and keeps
	// metadata in memory.
	MostAsked = 16 << 10
	// MostConsumers is how many consumers a stream may have, of all users, before readers may create no more. The server
	// has room for 1000.
	MostConsumers = 500
	// mostTogether is the same for all streams together. It leaves out consumers of weir's own: ofEachStream for each
	// stream. A consumer takes about 70 KiB of memory.
	mostTogether = 1000
	ofEachStream = 4
	longestIdle  = 24 * time.Hour // a reader's consumer that is idle for longer is deleted
)

// The subject of an acknowledgement is ackPrefix and ackTokens tokens. The first two tokens are the stream and the
// consumer. The server also accepts a longer form, which begins with the domain and the account. The embedded server's
// messages ask for the shorter form.
const (
	ackPrefix = "$JS.ACK."
	ackTokens = 7
)

// theirs is the key in a consumer's metadata that marks it as a reader's.
const theirs = "weir.producers"

// Open starts a gate, and returns when the server knows its subscriptions. nc is a connection in the account with the
// streams, and the caller must close it. If operatorCreds is not empty, the gate tells clients that ask where the
// operators' credentials are. Several gates of one server share the requests.
func Open(nc *nats.Conn, operatorCreds string, log *slog.Logger) (*Gate, error) {
	g := &Gate{nc: nc, creds: operatorCreds, log: log, ours: map[string]time.Time{}}
	handlers := map[string]nats.MsgHandler{
		Make + ">": g.makeConsumer, Durable + ">": g.makeConsumer, Drop + "*.*": g.dropConsumer,
		List + "*": g.listConsumers, Names + "*": g.nameConsumers, Ack + ">": g.acknowledge,
	}
	if operatorCreds != "" {
		handlers[connect.Whereabouts] = g.tellWhereabouts
	}
	for subject, handle := range handlers {
		sub, err := nc.QueueSubscribe(subject, queueGroup, g.bounded(handle))
		if err == nil {
			g.subs = append(g.subs, sub)
			err = sub.SetPendingLimits(mostWaiting, mostBytes)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("gate of the readers: %w", err), g.Close())
		}
	}
	if err := nc.Flush(); err != nil {
		return nil, errors.Join(fmt.Errorf("gate of the readers: %w", err), g.Close())
	}
	return g, nil
}

// Close drains the subscriptions. Requests that have arrived are still answered.
func (g *Gate) Close() error {
	var errs []error
	for _, sub := range g.subs {
		if err := sub.Drain(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			errs = append(errs, fmt.Errorf("gate of the readers: %w", err))
		}
	}
	return errors.Join(errs...)
}

// bounded returns a handler that passes only messages with subjects short enough for the prefixes that the gate adds.
// The server would close the gate's connection if a control line were too long.
func (g *Gate) bounded(handle nats.MsgHandler) nats.MsgHandler {
	return func(msg *nats.Msg) {
		switch {
		case len(msg.Reply) > mostSubject: // the message cannot be answered
		case len(msg.Subject) > mostSubject:
			g.refuse(msg, 400, fmt.Sprintf("the question has a subject of %d bytes: name streams, consumers and subjects with less than %d together", len(msg.Subject), mostSubject))
		default:
			handle(msg)
		}
	}
}

// consumerRequest is a client's request to create a consumer. The gate passes on members of Config unchanged if it does
// not check them.
type consumerRequest struct {
	Stream   string                     `json:"stream_name"`
	Config   map[string]json.RawMessage `json:"config"`
	Action   string                     `json:"action,omitempty"`
	Pedantic bool                       `json:"pedantic,omitempty"`
}

// makeConsumer creates a reader's consumer. It never changes an existing consumer, which may be another user's.
func (g *Gate) makeConsumer(msg *nats.Msg) {
	address, durable := strings.CutPrefix(msg.Subject, Durable)
	verb := "DURABLE.CREATE."
	if !durable {
		address, verb = strings.TrimPrefix(msg.Subject, Make), "CREATE."
	}
	if len(msg.Data) > MostAsked {
		g.refuse(msg, 400, fmt.Sprintf("a question for a consumer has at most %d bytes: only operators may ask with more", MostAsked))
		return
	}
	var ask consumerRequest
	if err := json.Unmarshal(msg.Data, &ask); err != nil {
		g.refuse(msg, 400, "the question is not understood: "+err.Error())
		return
	}
	stream, _, _ := strings.Cut(address, ".")
	if err := g.mayRead(stream); err != nil {
		g.refuse(msg, 403, err.Error())
		return
	}
	pushedTo, err := ask.restrict()
	if err != nil {
		g.refuse(msg, 403, err.Error())
		return
	}
	data, err := json.Marshal(ask)
	if err != nil {
		g.refuse(msg, 400, err.Error())
		return
	}
	answer, err := g.nc.Request("$JS.API.CONSUMER."+verb+address, data, answerWait)
	if err != nil {
		g.unanswered(msg, err)
		return
	}
	var made consumerInfo
	if json.Unmarshal(answer.Data, &made) == nil && made.Name != "" {
		g.remember(stream + "." + made.Name)
	}
	g.respond(msg, withPushedTo(answer.Data, pushedTo))
}

// mayRead returns an error if the stream is not weir's, or if it or all streams together have too many consumers.
func (g *Gate) mayRead(stream string) error {
	if !strings.HasPrefix(stream, "WEIR_") && !strings.HasPrefix(stream, "KV_weir_") {
		return fmt.Errorf("stream %q is not weir's: read it with the operators' credentials", stream)
	}
	answer, err := g.nc.Request("$JS.API.STREAM.INFO."+stream, nil, answerWait)
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	var info struct {
		State struct {
			Consumers int `json:"consumer_count"`
		} `json:"state"`
	}
	if err := json.Unmarshal(answer.Data, &info); err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	if info.State.Consumers >= MostConsumers {
		return fmt.Errorf("stream %s has %d consumers: only operators may add more", stream, info.State.Consumers)
	}
	if answer, err = g.nc.Request("$JS.API.INFO", nil, answerWait); err != nil {
		return fmt.Errorf("consumers of all streams: %w", err)
	}
	var all struct {
		Streams   int `json:"streams"`
		Consumers int `json:"consumers"`
	}
	if err := json.Unmarshal(answer.Data, &all); err != nil {
		return fmt.Errorf("consumers of all streams: %w", err)
	}
	if all.Consumers >= mostTogether+ofEachStream*all.Streams {
		return fmt.Errorf("the streams have %d consumers: only operators may add more", all.Consumers)
	}
	return nil
}

// restrict changes the request so that the consumer pushes below ReplyPrefix, which its creator can hear and no stream
// takes, and so that the server deletes the consumer when it is unused. It returns the subject that the client asked
// for.
func (r *consumerRequest) restrict() (pushedTo string, err error) {
	if r.Config == nil {
		return "", errors.New("a consumer needs a config")
	}
	for name := range r.Config {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			// The server ignores case: it would read this member as the one in lower case, whose value the gate has not
			// checked.
			return "", fmt.Errorf("config has the member %q: write names of members as JetStream does, in lower case", name)
		}
	}
	r.Action = "create"
	metadata := map[string]string{}
	if raw, ok := r.Config["metadata"]; ok && !bytes.Equal(raw, []byte("null")) {
		if err := json.Unmarshal(raw, &metadata); err != nil {
			return "", fmt.Errorf("metadata: %w", err)
		}
	}
	metadata[theirs] = "1"
	r.set("metadata", metadata)
	idle, isDurable := time.Duration(0), ""
	for name, into := range map[string]any{"inactive_threshold": &idle, "durable_name": &isDurable, "deliver_subject": &pushedTo} {
		if raw, ok := r.Config[name]; ok {
			if err := json.Unmarshal(raw, into); err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if idle > longestIdle || idle <= 0 && isDurable != "" { // the server treats a negative threshold as 0
		r.set("inactive_threshold", longestIdle)
	}
	if pushedTo != "" {
		r.set("deliver_subject", ReplyPrefix+pushedTo)
	}
	return pushedTo, nil
}

func (r *consumerRequest) set(name string, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("a consumer's config that JSON cannot carry: " + err.Error())
	}
	r.Config[name] = raw
}

// withPushedTo replaces the subject below ReplyPrefix in the answer about a consumer by the subject that the client
// asked for.
func withPushedTo(answer []byte, pushedTo string) []byte {
	if pushedTo == "" {
		return answer
	}
	quoted, err := json.Marshal(ReplyPrefix + pushedTo)
	if err != nil {
		return answer
	}
	asked, err := json.Marshal(pushedTo)
	if err != nil {
		return answer
	}
	return bytes.Replace(answer, append([]byte(`"deliver_subject":`), quoted...), append([]byte(`"deliver_subject":`), asked...), 1)
}

// dropConsumer deletes a reader's consumer.
func (g *Gate) dropConsumer(msg *nats.Msg) {
	address := strings.TrimPrefix(msg.Subject, Drop)
	// If the consumer does not exist, JetStream's own error is better than the gate's.
	if err := g.isTheirs(address); err != nil && !errors.Is(err, errNoConsumer) {
		g.refuse(msg, 403, err.Error())
		return
	}
	answer, err := g.nc.Request("$JS.API.CONSUMER.DELETE."+address, nil, answerWait)
	if err != nil {
		g.unanswered(msg, err)
		return
	}
	g.forget(address)
	g.respond(msg, answer.Data)
}

// acknowledge passes an acknowledgement on to a reader's consumer. It drops acknowledgements whose subject has the
// longer form.
func (g *Gate) acknowledge(msg *nats.Msg) {
	rest := strings.TrimPrefix(msg.Subject, Ack)
	tokens := strings.Split(rest, ".")
	if len(tokens) != ackTokens || bytes.HasPrefix(msg.Data, []byte("+NXT")) ||
		g.isTheirs(tokens[0]+"."+tokens[1]) != nil {
		return // JetStream ignores such messages too
	}
	if msg.Reply == "" {
		g.publish(&nats.Msg{Subject: ackPrefix + rest, Data: msg.Data})
		return
	}
	answer, err := g.nc.Request(ackPrefix+rest, msg.Data, answerWait)
	if err != nil {
		g.log.Debug("the server did not confirm an acknowledgement", "consumer", tokens[1], "err", err)
		return
	}
	g.respond(msg, answer.Data)
}

// consumerPage is one page of the list of a stream's consumers, or of their names.
type consumerPage struct {
	Type      string            `json:"type"`
	Total     int               `json:"total"`
	Offset    int               `json:"offset"`
	Limit     int               `json:"limit"`
	Consumers []json.RawMessage `json:"consumers"`
	Error     *apiError         `json:"error,omitempty"`
}

func (g *Gate) listConsumers(msg *nats.Msg) {
	g.tellConsumers(msg, List, "io.nats.jetstream.api.v1.consumer_list_response", func(info json.RawMessage, _ string) json.RawMessage { return info })
}

func (g *Gate) nameConsumers(msg *nats.Msg) {
	g.tellConsumers(msg, Names, "io.nats.jetstream.api.v1.consumer_names_response", func(_ json.RawMessage, name string) json.RawMessage {
		quoted, err := json.Marshal(name)
		if err != nil {
			panic("a string that JSON cannot carry: " + err.Error())
		}
		return quoted
	})
}

// consumersAPage is how many consumers one answer lists at most.
const consumersAPage = 256

// tellConsumers answers with the consumers of a stream that readers have created, each in the form that show returns.
func (g *Gate) tellConsumers(msg *nats.Msg, from, kind string, show func(info json.RawMessage, name string) json.RawMessage) {
	var ask struct {
		Offset int `json:"offset"`
	}
	if len(msg.Data) > 0 && json.Unmarshal(msg.Data, &ask) != nil || ask.Offset < 0 {
		g.refuse(msg, 400, "the question is not understood")
		return
	}
	page := consumerPage{Type: kind, Offset: ask.Offset, Limit: consumersAPage, Consumers: []json.RawMessage{}}
	for all := 0; ; {
		answer, err := g.nc.Request("$JS.API.CONSUMER.LIST."+strings.TrimPrefix(msg.Subject, from), fmt.Appendf(nil, `{"offset":%d}`, all), answerWait)
		if err != nil {
			g.unanswered(msg, err)
			return
		}
		var part consumerPage
		if err := json.Unmarshal(answer.Data, &part); err != nil || part.Error != nil {
			g.respond(msg, answer.Data)
			return
		}
		for _, info := range part.Consumers {
			var c consumerInfo
			if json.Unmarshal(info, &c) != nil || c.Config.Metadata[theirs] == "" {
				continue
			}
			if page.Total++; page.Total > ask.Offset && len(page.Consumers) < consumersAPage {
				page.Consumers = append(page.Consumers, show(info, c.Name))
			}
		}
		if all += len(part.Consumers); len(part.Consumers) == 0 || all >= part.Total {
			break
		}
	}
	data, err := json.Marshal(page)
	if err != nil {
		g.refuse(msg, 500, "the list of consumers: "+err.Error())
		return
	}
	g.respond(msg, data)
}

// consumerInfo is the part of a consumer's description that the gate reads.
type consumerInfo struct {
	Name   string `json:"name"`
	Config struct {
		Metadata map[string]string `json:"metadata"`
	} `json:"config"`
	Error *apiError `json:"error"`
}

// errNoConsumer reports that a consumer does not exist.
var errNoConsumer = errors.New("there is no such consumer")

// isTheirs returns nil if a reader has created the consumer, and an error otherwise.
func (g *Gate) isTheirs(address string) error {
	g.mu.Lock()
	said, known := g.ours[address]
	g.mu.Unlock()
	if known && time.Since(said) < rememberedFor {
		return nil
	}
	answer, err := g.nc.Request("$JS.API.CONSUMER.INFO."+address, nil, answerWait)
	if err != nil {
		return fmt.Errorf("consumer %s: %w", address, err)
	}
	var info consumerInfo
	if err := json.Unmarshal(answer.Data, &info); err != nil {
		return fmt.Errorf("consumer %s: %w", address, err)
	}
	if info.Error != nil && info.Error.Code == 404 {
		return fmt.Errorf("consumer %s: %w", address, errNoConsumer)
	}
	if info.Error != nil {
		return fmt.Errorf("consumer %s: %s", address, info.Error.Description)
	}
	if info.Config.Metadata[theirs] == "" {
		return fmt.Errorf("consumer %s is not a producer's: use the operators' credentials", address)
	}
	g.remember(address)
	return nil
}

func (g *Gate) remember(address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.ours) >= mostRemembers {
		clear(g.ours) // JetStream is asked for them again
	}
	g.ours[address] = time.Now()
}

func (g *Gate) forget(address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.ours, address)
}

// tellWhereabouts answers with the path of the operators' credentials. Only users that may read the file can use them.
func (g *Gate) tellWhereabouts(msg *nats.Msg) {
	data, err := json.Marshal(connect.Inside{OperatorCreds: g.creds, ReplyPrefix: ReplyPrefix})
	if err != nil {
		panic("a path that JSON cannot carry: " + err.Error())
	}
	g.respond(msg, data)
}

// apiError is an error in JetStream's format.
type apiError struct {
	Code        int    `json:"code"`
	Description string `json:"description"`
}

// refuse answers with an error in JetStream's format.
func (g *Gate) refuse(msg *nats.Msg, code int, why string) {
	data, err := json.Marshal(map[string]any{"error": apiError{code, why}})
	if err != nil {
		panic("an error that JSON cannot carry: " + err.Error())
	}
	g.respond(msg, data)
}

// unanswered tells a client that JetStream does not answer.
func (g *Gate) unanswered(msg *nats.Msg, err error) {
	g.refuse(msg, 503, "JetStream does not answer: "+err.Error())
}

func (g *Gate) respond(msg *nats.Msg, data []byte) {
	if msg.Reply != "" {
		g.publish(&nats.Msg{Subject: msg.Reply, Data: data})
	}
}

func (g *Gate) publish(msg *nats.Msg) {
	if err := g.nc.PublishMsg(msg); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		g.log.Warn("gate of the readers", "err", err)
	}
}
