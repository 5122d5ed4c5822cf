package worker

import (
	"context"
	"sync"

	"weir/cmd/weir/internal/httpd/webhook"
	"weir/cmd/weir/internal/serve/admin"
)

// makeSenders returns the senders, which post events to destinations and ends of jobs to callbacks.
func (w *notices) makeSenders() *webhook.Senders {
	return webhook.New(webhook.Options{
		JetStream: w.js, Control: w.control, Configured: w.follower.inForce.Load, Version: w.follower.version.Load,
		Instance: w.settings.Instance, Log: w.log, Registerer: w.registry,
	})
}

// post runs the senders. Each sender posts only while this replica holds the sender's lease.
func (w *notices) post() {
	w.lowerGo(func() error { return w.senders.Run(w.soft) })
}

// callbackLag returns how far the callback of an api is behind, nil if the api has none.
func (w *notices) callbackLag(api string) *admin.CallbackStatus {
	of, ok := w.follower.inForce.Load().API(api)
	if !ok || of.Callback == nil {
		return nil
	}
	lag, ok := w.senders.Lag(api)
	if !ok {
		return nil
	}
	return &admin.CallbackStatus{
		Receiver: of.Callback.URL.String(), Unknown: !lag.IsKnown,
		Behind: lag.Behind, Oldest: lag.Oldest, Failing: lag.Failing, Why: lag.Why,
		GivenUp: lag.GivenUp, GivenUpAt: lag.GivenUpAt, GivenUpWhy: lag.GivenUpWhy,
	}
}

// posting says whether an end was posted to the callback of its api, nil if the api has none.
func (w *notices) posting(end admin.EndPlace) *admin.Posting { return w.senders.Posting(end) }

// testsAtOnce bounds how many receivers are tested at the same time.
const testsAtOnce = 16

// tryReceivers posts a test message to the receiver of that name, or to all receivers if name is empty. The name of a
// callback is API/callback.
func (w *notices) tryReceivers(ctx context.Context, name, who string) []admin.Notified {
	c := w.follower.inForce.Load()
	var all []admin.Notified
	var tests []func() error
	add := func(of string, test func() error) {
		if name == "" || name == of {
			all, tests = append(all, admin.Notified{Destination: of}), append(tests, test)
		}
	}
	for i := range c.Notifications {
		to := &c.Notifications[i]
		add(to.Name, func() error { return w.senders.Test(ctx, to, who) })
	}
	for i := range c.APIs {
		if a := &c.APIs[i]; a.Callback != nil {
			add(admin.CallbackName(a.Name), func() error { return w.senders.TestCallback(ctx, a.Name, a.Callback, who) })
		}
	}
	var running sync.WaitGroup
	slots := make(chan struct{}, testsAtOnce)
	for i, test := range tests {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			if err := test(); err != nil {
				all[i].Error = err.Error()
			}
		})
	}
	running.Wait()
	return all
}
