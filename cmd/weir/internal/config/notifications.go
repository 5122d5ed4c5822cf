package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"weir/bucket"
	"weir/deadletter"
)

// Notifications say where events are sent besides NATS.
type Notifications struct {
	Webhook *Webhook // nil: none
}

// Webhook is where events are posted to.
type Webhook struct {
	URL    Template
	Secret Template               // one reference, resolved anew for each post, see Key
	Events []deadletter.EventType // sorted; all types if the file names none
	Rate   bucket.Rate            // of posts

	line int
	path string
}

// Bounds of a webhook's secret, as in Standard Webhooks.
const (
	leastWebhookKey = 24
	mostWebhookKey  = 64
	webhookFix      = "write whsec_ and 24 to 64 bytes in base64, as `echo whsec_$(openssl rand -base64 32)` makes them"
)

// Target returns the present address. It reads variables or files. The error holds no part of it.
func (w *Webhook) Target() (string, error) {
	text, err := w.URL.Resolve()
	if err == nil {
		_, err = webhookURL(text)
	}
	if err != nil && w.URL.HasReference() {
		return "", errors.New("the webhook's url cannot be resolved, or is none of https://host/path")
	}
	return text, err
}

// Key returns the present signing key. It reads a variable or a file. The error holds no part of it.
func (w *Webhook) Key() ([]byte, error) {
	text, err := w.Secret.Resolve()
	if err != nil {
		return nil, err
	}
	encoded, ok := strings.CutPrefix(text, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < leastWebhookKey || len(key) > mostWebhookKey {
		return nil, fmt.Errorf("%s is no secret of a webhook: %s", w.Secret, webhookFix)
	}
	return key, nil
}

func readNotifications(v value) (n Notifications) {
	f, ok := v.fields("webhook")
	if !ok {
		return n
	}
	if hook, ok := f.byName["webhook"]; ok {
		n.Webhook = readWebhook(hook)
	}
	return n
}

func readWebhook(v value) *Webhook {
	f, ok := v.fields("url", "secret", "events", "rate")
	if !ok {
		return nil
	}
	f.require("url", "write url: https://host/path")
	f.require("secret", "write secret: ${env:NAME} or ${file:/path}")
	at := f.place("secret")
	w := &Webhook{line: at.line, path: at.path}
	w.URL = read(f, "url", w.URL, webhookTarget)
	w.Secret = read(f, "secret", w.Secret, tokenReference)
	w.Events = readList(f, "events", len(deadletter.EventTypes()), oneOf(deadletter.EventTypes()...))
	if len(w.Events) == 0 {
		w.Events = deadletter.EventTypes()
	}
	slices.Sort(w.Events)
	w.Events = slices.Compact(w.Events)
	w.Rate = read(f, "rate", bucket.Rate{Count: 10, Per: time.Second, Burst: 1}, webhookRate)
	return w
}

// webhookRate reads the rate of posts.
func webhookRate(text string) (bucket.Rate, error) {
	r, err := ParseRate(text)
	if err == nil && (r.Per/time.Duration(r.Count) > time.Minute || r.Per/time.Duration(r.Count) < time.Millisecond) {
		return r, refuse("write 1/min to 1000/s", "%s is no rate for events", quote(text))
	}
	r.Burst = 1
	return r, err
}

// webhookTarget reads an address. An address that is a secret itself, as those of chats, is written as a reference.
func webhookTarget(text string) (Template, error) {
	t, err := ParseTemplate(text)
	if err != nil || t.HasReference() {
		return t, err
	}
	_, err = webhookURL(text)
	return t, err
}

func webhookURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, refuse("write https://host/path, without user and fragment; one that is a secret itself as ${env:NAME}", "this is no address to post to")
	}
	return u, nil
}

// missing returns why the webhook cannot be used on this machine.
func (w *Webhook) missing(scope *SecretScope) []Problem {
	if w == nil {
		return nil
	}
	problems := Header{Value: w.URL, line: w.line, path: w.path}.missing(scope)
	problems = append(problems, Header{Value: w.Secret, line: w.line, path: w.path}.missing(scope)...)
	if len(problems) > 0 {
		return problems
	}
	_, err := w.Key()
	if err == nil {
		_, err = w.Target()
	}
	if err != nil {
		problems = append(problems, Problem{Line: w.line, Path: w.path, Message: err.Error(), Fix: "provide it where weir serve runs"})
	}
	return problems
}

func (d description) notifications(n Notifications) {
	if n.Webhook == nil {
		return
	}
	const path = "notifications.webhook"
	var events []string
	for _, e := range n.Webhook.Events {
		events = append(events, string(e))
	}
	d.set(path, "url", n.Webhook.URL.String())
	d.set(path, "secret", n.Webhook.Secret.String())
	d.set(path, "events", strings.Join(events, ", "))
	d.set(path, "rate", FormatRate(n.Webhook.Rate))
}
