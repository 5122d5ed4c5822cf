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

// Destination is an address to which weir posts events.
type Destination struct {
	Name   string
	URL    Template
	Secret Template               // one reference, resolved anew for each post, see Key; without parts in SlackFormat if the file names none
	Format Format                 // of posts
	Group  time.Duration          // for which events of one kind are collected into one post; 0: each event is posted at once
	Events []deadletter.EventType // sorted; all types if the file names none
	Rate   bucket.Rate            // of posts
}

// Format is the form of posts.
type Format string

// The formats.
const (
	StandardFormat Format = "standard" // the CloudEvent, signed as Standard Webhooks specifies
	SlackFormat    Format = "slack"    // a text, as incoming webhooks of Slack and of others take it
)

const mostDestinations = 16

// Bounds of a webhook's secret, as in Standard Webhooks.
const (
	leastWebhookKey = 24
	mostWebhookKey  = 64
	webhookFix      = "write whsec_ and 24 to 64 bytes in base64, as `echo whsec_$(openssl rand -base64 32)` makes them"
)

// Target returns the present address. It reads variables or files. The error holds no part of it.
func (d *Destination) Target() (string, error) {
	text, err := d.URL.Resolve()
	if err == nil {
		_, err = webhookURL(text)
	}
	if err != nil && d.URL.HasReference() {
		return "", errors.New("the destination's url cannot be resolved, or is none of https://host/path")
	}
	return text, err
}

// Key returns the present signing key, nil if posts are not signed. It reads a variable or a file. The error holds no part of it.
func (d *Destination) Key() ([]byte, error) {
	if !d.Secret.HasReference() {
		return nil, nil
	}
	text, err := d.Secret.Resolve()
	if err != nil {
		return nil, err
	}
	encoded, ok := strings.CutPrefix(text, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < leastWebhookKey || len(key) > mostWebhookKey {
		return nil, fmt.Errorf("%s is no secret of a webhook: %s", d.Secret, webhookFix)
	}
	return key, nil
}

func (d *Destination) section() section {
	return section{
		fields: []field{
			{
				name: "url", needs: "write url: https://host/path, or ${env:NAME} for an address that is a secret",
				is: secret(&d.URL, "an address like `https://host/path`, or `http`; no user, no fragment; `${env:NAME}` and `${file:/path}` "+
					"stand for what is secret in it", webhookTarget, func() error {
					_, err := d.Target()
					return err
				}),
				means: "where weir posts events. weir follows no redirect. In the format `slack` at least a part of the address must be a reference",
			},
			{
				name: "secret", otherwise: "none",
				is: secret(&d.Secret, "one `${env:NAME}` or `${file:/path}`", tokenReference, func() error {
					_, err := d.Key()
					return err
				}),
				means: "the key that signs posts: `whsec_` and 24 to 64 bytes in base64. weir reads it for each post. Required in the " +
					"format `standard`",
			},
			{
				name: "format", is: one(&d.Format, word(StandardFormat, SlackFormat)), or: "standard",
				means: "`standard` posts the CloudEvent, signed as Standard Webhooks specifies; `slack` posts a sentence for people, in " +
					"the form that incoming webhooks of Slack, Mattermost and others accept",
			},
			{
				name: "group", is: one(&d.Group, orEmpty(duration(time.Second, time.Hour))), otherwise: "none",
				means: "how long weir collects events and counts those of one type, API, key, reason, instance, limit and " +
					"user together. Without it weir posts each event at once",
			},
			{
				name: "events", otherwise: "all", means: "which [events](events.md) weir posts",
				is: many(&d.Events, len(deadletter.EventTypes()), word(deadletter.EventTypes()...).prefixed("a list of ")),
			},
			{
				name: "rate", is: one(&d.Rate, rate().but("a rate from 1/min to 1000/s", webhookRate)), or: "10/s",
				means: "the highest rate of posts",
			},
		},
		check: func(f fields) {
			if len(d.Events) == 0 {
				d.Events = deadletter.EventTypes()
			}
			slices.Sort(d.Events)
			if d.Format == StandardFormat && f.fine("format") && !f.has("secret") {
				f.absent("secret").fail("is missing", "write secret: ${env:NAME} or ${file:/path}")
			}
			if d.Format == SlackFormat && f.fine("format", "url") && !d.URL.HasReference() {
				f.place("url").fail("a chat accepts every post to its address: such a secret must not stand in the file",
					"write ${env:NAME} or ${file:/path} for it, or for its secret part")
			}
			if d.URL.inPlainText() {
				f.place("url").warn("a secret goes over the network in plain text", "write https")
			}
		},
		relations: object{"anyOf": []object{
			{"required": []string{"secret"}}, {"required": []string{"format"}, "properties": object{"format": object{"const": SlackFormat}}},
		}},
	}
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

// webhookTarget reads an address, in which references stand for what is secret.
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
