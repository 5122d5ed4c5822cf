package config

import (
	"fmt"
	"time"
)

// Callback says where weir posts the end of each of an api's jobs. A nil *Callback means that weir posts none.
type Callback struct {
	Receiver
	For time.Duration // how long weir tries to post an end, counted from when it stored the end: 1m to 30d

	forSet bool // the file sets For
}

func (c *Callback) section() section {
	return section{
		fields: []field{
			{
				name: "url", is: c.address(),
				needs: "write url: https://host/path, or ${env:NAME} for an address that is a secret",
				means: "where weir posts the ends. weir follows no redirect",
			},
			{
				name: "secret", needs: "write secret: ${env:NAME} or ${file:/path}", is: c.key(),
				means: "the key that signs posts: `whsec_` and 24 to 64 bytes in base64. weir reads it for each post",
			},
			{
				name: "rate", is: c.pace(), or: "10/s",
				means: "the highest rate of posts for each of `job.done` and `job.dead`, including tries that fail",
			},
			{
				name: "for", is: one(&c.For, duration(time.Minute, 30*day)), or: "72h",
				means: "how long weir tries to post an end, counted from that end. It tries no longer than results or letters are kept: " +
					"see `results` and `dead_letters`",
			},
		},
		check: func(f fields) {
			c.forSet = f.has("for")
			c.warnOfPlainText(f)
		},
	}
}

// warnOfCallbacks warns of a callback that weir tries for longer than it keeps ends.
func (c *Config) warnOfCallbacks(f fields) {
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
				f.place(kept.field).warn(fmt.Sprintf("weir drops %s after %s, so the callback of api %s tries them no longer, although its for is %s",
					kept.what, FormatDuration(kept.age), a.Name, FormatDuration(a.Callback.For)),
					fmt.Sprintf("raise %s.max_age, or lower apis.%s.callback.for", kept.field, a.Name))
			}
		}
	}
}
