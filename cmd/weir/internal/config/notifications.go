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

func (n *Notifications) section() section {
	return section{fields: []field{{
		name: "webhook", is: optional(&n.Webhook, (*Webhook).section), otherwise: "none",
		means: "the address to which weir posts events ([events](events.md#a-webhook))",
	}}}
}

func (w *Webhook) section() section {
	return section{fields: []field{
		{
			name: "url", needs: "write url: https://host/path",
			is: secret(&w.URL, "an address like `https://host/path`, or `http`; no user, no fragment; `${env:NAME}` and `${file:/path}` "+
				"stand for what is secret in it", webhookTarget, func() error {
				_, err := w.Target()
				return err
			}),
			means: "where weir posts events. It follows no redirect",
		},
		{
			name: "secret", needs: "write secret: ${env:NAME} or ${file:/path}",
			is: secret(&w.Secret, "one `${env:NAME}` or `${file:/path}`", tokenReference, func() error {
				_, err := w.Key()
				return err
			}),
			means: "the key that signs posts: `whsec_` and 24 to 64 bytes in base64. weir reads it for each post",
		},
		{
			name: "events", otherwise: "all", means: "which [events](events.md) weir posts",
			is: sorted(many(&w.Events, len(deadletter.EventTypes()), word(deadletter.EventTypes()...).prefixed("a list of ")), func() {
				if len(w.Events) == 0 {
					w.Events = deadletter.EventTypes()
				}
				slices.Sort(w.Events)
			}),
		},
		{
			name: "rate", is: one(&w.Rate, rate().but("a rate from 1/min to 1000/s", webhookRate)), or: "10/s",
			means: "the highest rate of posts",
		},
	}}
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
