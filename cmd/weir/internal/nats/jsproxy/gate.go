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

// Gate answers readers' questions until it is closed.
type Gate struct {
	nc    *nats.Conn // in the account with the streams
	creds string     // path of the operators' credentials; empty: clients are not told it
	log   *slog.Logger
	subs  []*nats.Subscription

	mu   sync.Mutex
	ours map[string]time.Time // readers' consumers, <stream>.<consumer>: when JetStream said so
}

// Bounds of the gate.
const (
	answerWait    = 5 * time.Second  // for one answer of JetStream
	mostWaiting   = 4096             // questions that may wait; further ones are not answered
	mostBytes     = 16 << 20         // of them
	mostRemembers = 10_000           // consumers of producers that are known without asking,
	rememberedFor = 10 * time.Second // and for how long: another user may reuse a name
	mostSubject   = 2 << 10          // bytes of a question's subject: a stream, a consumer, and subjects of messages
	MostAsked     = 16 << 10         // bytes of a question for a consumer: filters are compared with each other, metadata stays in memory
	MostConsumers = 500              // of one stream, of all users, from which on producers may create none: the server has room for 1000
	mostTogether  = 1000             // of all streams, beside weir's own, in the same way: each takes some 70 KiB of memory
	ofEachStream  = 4                // that weir may have
	longestIdle   = 24 * time.Hour   // of a producer's consumer, which is then deleted
)

// An acknowledgement's subject is ackPrefix and ackTokens tokens, of which the first two are the stream and the
// consumer. The server also takes a longer form, which begins with the domain and the account. Messages of the embedded
// server ask for the shorter form.
const (
	ackPrefix = "$JS.ACK."
	ackTokens = 7
)

// theirs marks a producer's consumer, in its metadata.
const theirs = "weir.producers"

// Open begins to answer, and returns when the server knows. nc is in the account that has the streams, and stays the
// caller's. If operatorCreds is not empty, clients that ask are told that the operators' credentials are there. Several
// gates of one server share the questions.
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

// Close ends the answers. Questions in progress are still answered.
func (g *Gate) Close() error {
	var errs []error
	for _, sub := range g.subs {
		if err := sub.Drain(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			errs = append(errs, fmt.Errorf("gate of the readers: %w", err))
		}
	}
	return errors.Join(errs...)
}

// bounded passes to handle only messages that leave room for what the gate prepends: the server would close the gate's
// connection for a control line over its bound.
func (g *Gate) bounded(handle nats.MsgHandler) nats.MsgHandler {
	return func(msg *nats.Msg) {
		switch {
		case len(msg.Reply) > mostSubject: // it cannot be answered
		case len(msg.Subject) > mostSubject:
			g.refuse(msg, 400, fmt.Sprintf("the question has a subject of %d bytes: name streams, consumers and subjects with less than %d together", len(msg.Subject), mostSubject))
		default:
			handle(msg)
		}
	}
}

// consumerRequest is a client's request to create a consumer. What the gate does not check is passed on unchanged.
type consumerRequest struct {
	Stream   string                     `json:"stream_name"`
	Config   map[string]json.RawMessage `json:"config"`
	Action   string                     `json:"action,omitempty"`
	Pedantic bool                       `json:"pedantic,omitempty"`
}

// makeConsumer creates a producer's consumer. It changes no existing consumer, which may be another user's.
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

// mayRead refuses a stream that is not weir's, and a stream with too many consumers.
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

// restrict makes the consumer push to where its creator can hear it and no stream can, and end when it is unused. It
// returns the subject that the client asked for.
func (r *consumerRequest) restrict() (pushedTo string, err error) {
	if r.Config == nil {
		return "", errors.New("a consumer needs a config")
	}
	for name := range r.Config {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			// The server would read it as the member of that name in lower case, whose value was not checked.
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
	if idle > longestIdle || idle <= 0 && isDurable != "" { // the server takes a negative threshold for 0
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

// withPushedTo puts the subject that a client asked for back into the answer about its consumer.
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

// dropConsumer deletes a producer's consumer.
func (g *Gate) dropConsumer(msg *nats.Msg) {
	address := strings.TrimPrefix(msg.Subject, Drop)
	// JetStream's own error says better that there is no such consumer.
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

// acknowledge passes an acknowledgement on to a producer's consumer. It drops subjects in the longer form.
func (g *Gate) acknowledge(msg *nats.Msg) {
	rest := strings.TrimPrefix(msg.Subject, Ack)
	tokens := strings.Split(rest, ".")
	if len(tokens) != ackTokens || bytes.HasPrefix(msg.Data, []byte("+NXT")) ||
		g.isTheirs(tokens[0]+"."+tokens[1]) != nil {
		return // as JetStream passes over what acknowledges nothing
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

// consumerPage is a part of the list of a stream's consumers, or of their names.
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

// consumersAPage bounds how many consumers one answer lists.
const consumersAPage = 256

// tellConsumers answers with a stream's consumers that producers have created, each as show returns it.
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

// errNoConsumer is isTheirs' error if the consumer does not exist.
var errNoConsumer = errors.New("there is no such consumer")

// isTheirs refuses a consumer that no producer has created.
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
		clear(g.ours) // they are asked for again
	}
	g.ours[address] = time.Now()
}

func (g *Gate) forget(address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.ours, address)
}

// tellWhereabouts answers where the operators' credentials are. Only users that may read the file can use them.
func (g *Gate) tellWhereabouts(msg *nats.Msg) {
	data, err := json.Marshal(connect.Inside{OperatorCreds: g.creds, ReplyPrefix: ReplyPrefix})
	if err != nil {
		panic("a path that JSON cannot carry: " + err.Error())
	}
	g.respond(msg, data)
}

// apiError is an error in the format of JetStream.
type apiError struct {
	Code        int    `json:"code"`
	Description string `json:"description"`
}

// refuse answers in the format of JetStream.
func (g *Gate) refuse(msg *nats.Msg, code int, why string) {
	data, err := json.Marshal(map[string]any{"error": apiError{code, why}})
	if err != nil {
		panic("an error that JSON cannot carry: " + err.Error())
	}
	g.respond(msg, data)
}

// unanswered tells a client that nothing answers, as the server would.
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
