package config

import (
	"slices"
	"time"

	"weir/deadletter"
)

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

func (d *Destination) section() section {
	return section{
		fields: []field{
			{
				name: "url", is: d.address(),
				needs: "write url: https://host/path, or ${env:NAME} for an address that is a secret",
				means: "where weir posts events. weir follows no redirect. In the format `slack` at least a part of the address must be a reference",
			},
			{
				name: "secret", otherwise: "none", is: d.key(),
				means: "the key that signs posts: `whsec_` and 24 to 64 bytes in base64. weir reads it for each post. Required in the " +
					"format `standard`",
			},
			{
				name: "format", is: one(&d.Format, word(StandardFormat, SlackFormat)), or: "standard",
				means: "`standard` posts the CloudEvent, signed as Standard Webhooks specifies; `slack` posts a sentence for people, in " +
					"the form that incoming webhooks of Slack, Mattermost and others accept",
			},
			{
				name: "group", is: one(&d.Group, orNone(duration(time.Second, time.Hour))),
				otherwise: "`1m` in the format `slack`, else none", absent: func() {
					if d.Format == SlackFormat {
						d.Group = time.Minute
					}
				},
				means: "how long weir collects events and counts those of one type, API, key, reason, instance, limit and " +
					"user together. Without a group weir posts each event at once",
			},
			{
				name: "events", otherwise: "all", means: "which [events](events.md) weir posts",
				is: many(&d.Events, len(deadletter.EventTypes()), word(deadletter.EventTypes()...).prefixed("a list of ")),
			},
			{
				name: "rate", is: d.pace(), or: "10/s", means: "the highest rate of posts",
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
			d.warnOfPlainText(f)
		},
		relations: object{"anyOf": []object{
			{"required": []string{"secret"}}, {"required": []string{"format"}, "properties": object{"format": object{"const": SlackFormat}}},
		}},
	}
}
