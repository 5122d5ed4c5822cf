package worker

import (
	"context"
	"errors"
	"fmt"

	"weir/cmd/weir/internal/config/secret"
	"weir/cmd/weir/internal/serve/admin"
)

// Reload makes the worker read its configuration file anew and put it in force as a start would, unless weir considered
// that file last. Reload does not block. The worker logs the outcome and then calls done. If another reload is waiting
// to begin, Reload calls done at once, because the waiting reload will read the file anyway.
func (w *Worker) Reload(done func()) {
	select {
	case w.reloads <- done:
	default:
		done()
	}
}

// reloading runs the requested reloads until ctx ends.
func (w *Worker) reloading(ctx context.Context) error {
	for {
		select {
		case done := <-w.reloads:
			if err := w.ReloadNow(ctx); err != nil && ctx.Err() == nil {
				w.log.Error("the configuration file was not applied; the present configuration stays; apis that denied weir are tried again",
					"file", w.settings.Config, "err", err)
			}
			done()
		case <-ctx.Done():
			return nil
		}
	}
}

// ReloadNow reads the configuration file and, if it has changed, stores it as a new version. Every weir follows the new
// version, including this one. Before it stores anything, ReloadNow checks the file, its secrets, and whether this
// worker can run by it. ReloadNow blocks until the version is stored. In any case it then tries every api that denies
// weir, also if there is no file or the file cannot be put in force.
func (w *Worker) ReloadNow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	if w.dispatch != nil {
		defer w.dispatch.Desk.TryDenied() // a secret may have been rotated, whatever becomes of the file
	}
	if w.settings.Config == "" {
		w.log.Warn("SIGHUP: there is no configuration file to read: weir started without one (WEIR_CONFIG) and follows " +
			"what `weir config apply` stores; apis that denied weir are tried again")
		return nil
	}
	file, err := readConfigFile(w.settings.Config)
	if err != nil {
		return err
	}
	a, err := adopt(ctx, w.follower.store, file, w.settings.Site)
	if err != nil {
		return err
	}
	if err := a.former.CheckUnits(a.present.Config, file.path); err != nil {
		return err
	}
	scope := secret.NewScope(w.settings.Secrets, file.config.References())
	if err := w.follower.check(a.present.Config, scope); err != nil {
		return err
	}
	w.follower.scope.Store(scope)
	if a.file == nil {
		if _, err := a.store(ctx); err != nil {
			return err
		}
		w.log.Info("the configuration file has no changes; secrets are read again for every call, "+
			"and apis that denied weir are tried with them", "file", file.path, "version", a.present.Number)
		a.tellOverruled(file, w.log)
		a.tellProfiles(w.log)
		return nil
	}
	LogWarnings(w.log, file.path, file.config.Warnings)
	told, err := a.store(ctx)
	switch {
	case errors.Is(err, admin.ErrLostRace):
		return fmt.Errorf("%w: look at `weir config show`, and send SIGHUP again to put the file in force", admin.ErrLostRace)
	case err != nil:
		return err
	case told == nil:
		w.log.Info("another replica has applied the same file", "file", file.path, "version", a.present.Number)
		return nil
	}
	w.log.Info("the configuration file was stored; every replica follows it", "file", file.path, "version", told.NewVersion, "changes", told.Changes)
	if err := told.Event().Publish(ctx, w.js); err != nil {
		w.log.Warn("could not store an event", "err", err)
	}
	return nil
}
