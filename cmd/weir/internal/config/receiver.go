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
	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/config/secret"
	"weir/deadletter"
)

// Receiver is an address to which weir posts messages, signed as Standard Webhooks specifies.
type Receiver struct {
	URL    secret.Template
	Secret secret.Template // a single reference, which Key resolves for each post; empty if posts are not signed
	Rate   bucket.Rate     // of posts
}

// Bounds of a webhook's secret, as in Standard Webhooks.
const (
	leastWebhookKey = 24
	mostWebhookKey  = 64
	webhookFix      = "write whsec_ and 24 to 64 bytes in base64, as `echo whsec_$(openssl rand -base64 32)` makes them"
)

// Target returns the present address. It reads the variables or files that the address refers to. The error contains no
// part of the address.
func (r *Receiver) Target() (string, error) {
	text, err := r.URL.Resolve()
	if err == nil {
		_, err = webhookURL(text)
	}
	if err != nil && r.URL.HasReference() {
		return "", errors.New("the receiver's url refers to what is missing, or is not like https://host/path")
	}
	return text, err
}

// Key returns the present signing key, or nil if posts are not signed. It reads a variable or a file. The error
// contains no part of the key.
func (r *Receiver) Key() ([]byte, error) {
	if !r.Secret.HasReference() {
		return nil, nil
	}
	text, err := r.Secret.Resolve()
	if err != nil {
		return nil, err
	}
	encoded, ok := strings.CutPrefix(text, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < leastWebhookKey || len(key) > mostWebhookKey {
		return nil, fmt.Errorf("%s is no secret of a webhook: %s", r.Secret, webhookFix)
	}
	return key, nil
}

// address returns the kind of a receiver's url.
func (r *Receiver) address() field.Kind {
	return field.Secret(&r.URL,
		"an address like `https://host/path`, or `http`; no user, no fragment; `${env:NAME}` and `${file:/path}` "+
			"stand for what is secret in it", webhookTarget, func() error {
			_, err := r.Target()
			return err
		})
}

// key returns the kind of a receiver's secret.
func (r *Receiver) key() field.Kind {
	return field.Secret(&r.Secret, "one `${env:NAME}` or `${file:/path}`", tokenReference, func() error {
		_, err := r.Key()
		return err
	})
}

// pace returns the kind of a receiver's rate.
func (r *Receiver) pace() field.Kind {
	return field.One(&r.Rate, field.Rate().But("a rate from 1/min to 1000/s", webhookRate))
}

// warnOfPlainText warns if weir posts to the address over plain http, and the address contains a secret.
func (r *Receiver) warnOfPlainText(f field.Fields) {
	if inPlainText(r.URL) {
		f.Place("url").Warn("a secret goes over the network in plain text", "write https")
	}
}

// inPlainText reports whether a template is an http address of another machine that contains a secret.
func inPlainText(t secret.Template) bool {
	rest, plain := strings.CutPrefix(t.Start(), "http://")
	host, _, _ := strings.Cut(rest, "/")
	u, err := url.Parse("http://" + host)
	return plain && t.HasReference() && (err != nil || !grammar.OnThisMachine(u.Hostname()))
}

// webhookRate reads the rate of posts, from 1/min to 1000/s.
func webhookRate(text string) (bucket.Rate, error) {
	r, err := grammar.ParseRate(text)
	if err == nil && (r.Per/time.Duration(r.Count) > time.Minute || r.Per/time.Duration(r.Count) < time.Millisecond) {
		return r, problem.Refuse("write 1/min to 1000/s", "%s is no rate for posts", problem.Quote(text))
	}
	r.Burst = 1
	return r, err
}

// webhookTarget reads an address. References in it stand for secret parts.
func webhookTarget(text string) (secret.Template, error) {
	t, err := secret.ParseTemplate(text)
	if err != nil || t.HasReference() {
		return t, err
	}
	_, err = webhookURL(text)
	return t, err
}

func webhookURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil,
			problem.Refuse("write https://host/path, without user and fragment; one that is a secret itself as ${env:NAME}",
				"this is no address to post to")
	}
	return u, nil
}

// Callback says where weir posts the end of each of an api's jobs. A nil *Callback means that weir posts none.
type Callback struct {
	Receiver
	For time.Duration // how long weir tries to post an end, counted from when it stored the end: 1m to 30d

	forSet bool // the file sets For
}

func (c *Callback) section() field.Section {
	return field.Section{
		Fields: []field.Field{
			{
				Name: "url", Is: c.address(),
				Needs: "write url: https://host/path, or ${env:NAME} for an address that is a secret",
				Means: "where weir posts the ends. weir follows no redirect",
			},
			{
				Name: "secret", Needs: "write secret: ${env:NAME} or ${file:/path}", Is: c.key(),
				Means: "the key that signs posts: `whsec_` and 24 to 64 bytes in base64. weir reads it for each post",
			},
			{
				Name: "rate", Is: c.pace(), Or: "10/s",
				Means: "the highest rate of posts for each of `job.done` and `job.dead`, including tries that fail",
			},
			{
				Name: "for", Is: field.One(&c.For, field.Duration(time.Minute, 30*grammar.Day)), Or: "72h",
				Means: "how long weir tries to post an end, counted from that end. It tries no longer than results or letters " +
					"are kept: see `results` and `dead_letters`",
			},
		},
		Check: func(f field.Fields) {
			c.forSet = f.Has("for")
			c.warnOfPlainText(f)
		},
	}
}

// warnOfCallbacks warns of a callback that weir tries for longer than it keeps ends.
func (c *Config) warnOfCallbacks(f field.Fields) {
	for i := range c.APIs {
		a := &c.APIs[i]
		if a.Callback == nil || !a.Callback.forSet {
			continue
		}
		for _, kept := range []struct {
			what, field string
			age         time.Duration
		}{{"results", "results", c.Results.MaxAge}, {"letters", "dead_letters", c.DeadLetters.MaxAge}} {
			if kept.age < a.Callback.For {
				f.Place(kept.field).Warn(fmt.Sprintf("weir drops %s after %s, so the callback of api %s tries them no longer, "+
					"although its for is %s",
					kept.what, grammar.FormatDuration(kept.age), a.Name, grammar.FormatDuration(a.Callback.For)),
					fmt.Sprintf("raise %s.max_age, or lower apis.%s.callback.for", kept.field, a.Name))
			}
		}
	}
}

// Destination is an address to which weir posts events.
type Destination struct {
	Name string
	Receiver
	Format Format                 // of posts
	Group  time.Duration          // how long weir collects events of one kind for one post; 0: it posts each event at once
	Events []deadletter.EventType // sorted; all types if the file names none
}

// Format is the form of the posts to a destination.
type Format string

// The formats.
const (
	StandardFormat Format = "standard" // the CloudEvent, signed as Standard Webhooks specifies
	SlackFormat    Format = "slack"    // a text in the form of Slack's incoming webhooks, which others accept too
)

const mostDestinations = 16

func (d *Destination) section() field.Section {
	return field.Section{
		Fields: []field.Field{
			{
				Name: "url", Is: d.address(),
				Needs: "write url: https://host/path, or ${env:NAME} for an address that is a secret",
				Means: "where weir posts events. weir follows no redirect. In the format `slack` at least a part of the address " +
					"must be a reference",
			},
			{
				Name: "secret", Otherwise: "none", Is: d.key(),
				Means: "the key that signs posts: `whsec_` and 24 to 64 bytes in base64. weir reads it for each post. Required " +
					"in the format `standard`",
			},
			{
				Name: "format", Is: field.One(&d.Format, field.Word(StandardFormat, SlackFormat)), Or: "standard",
				Means: "`standard` posts the CloudEvent, signed as Standard Webhooks specifies; `slack` posts a sentence for " +
					"people, in the form that incoming webhooks of Slack, Mattermost and others accept",
			},
			{
				Name: "group", Is: field.One(&d.Group, field.OrNone(field.Duration(time.Second, time.Hour))),
				Otherwise: "`1m` in the format `slack`, else none", Absent: func() {
					if d.Format == SlackFormat {
						d.Group = time.Minute
					}
				},
				Means: "how long weir collects events and counts those of one type, API, key, reason, instance, limit and " +
					"user together. Without a group weir posts each event at once",
			},
			{
				Name: "events", Otherwise: "all", Means: "which [events](events.md) weir posts",
				Is: field.Many(&d.Events, len(deadletter.EventTypes()),
					field.Word(deadletter.EventTypes()...).Prefixed("a list of ")),
			},
			{
				Name: "rate", Is: d.pace(), Or: "10/s", Means: "the highest rate of posts",
			},
		},
		Check: func(f field.Fields) {
			if len(d.Events) == 0 {
				d.Events = deadletter.EventTypes()
			}
			slices.Sort(d.Events)
			if d.Format == StandardFormat && f.Fine("format") && !f.Has("secret") {
				f.Absent("secret").Fail("is missing", "write secret: ${env:NAME} or ${file:/path}")
			}
			if d.Format == SlackFormat && f.Fine("format", "url") && !d.URL.HasReference() {
				f.Place("url").Fail("a chat accepts every post to its address: such a secret must not stand in the file",
					"write ${env:NAME} or ${file:/path} for it, or for its secret part")
			}
			d.warnOfPlainText(f)
		},
		Relations: field.Object{"anyOf": []field.Object{
			{"required": []string{"secret"}},
			{"required": []string{"format"}, "properties": field.Object{"format": field.Object{"const": SlackFormat}}},
		}},
	}
}
