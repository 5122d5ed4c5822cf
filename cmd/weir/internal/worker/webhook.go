package worker

import (
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/webhook"
)

// postEvents begins to post events to the webhook of the configuration in force, if this replica is the one that does.
func (w *Worker) postEvents() {
	sender := webhook.New(webhook.Options{
		JetStream: w.js, Control: w.control, Instance: w.settings.Instance, Log: w.log, Registerer: w.registry,
		Configured: func() *config.Webhook { return w.follower.inForce.Load().Notifications.Webhook },
	})
	w.lowerGo(func() error { return sender.Run(w.soft) })
}
