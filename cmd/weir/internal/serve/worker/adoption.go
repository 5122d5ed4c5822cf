package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"weir/bucket"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/serve/admin"
)

// configFile is a configuration as read from disk.
type configFile struct {
	path   string
	text   []byte
	sum    string
	config *config.Config
}

// configured returns the file's configuration, nil if there is no file.
func (f *configFile) configured() *config.Config {
	if f == nil {
		return nil
	}
	return f.config
}

// succeed returns the file with the shares of accounts that are in force at site. current is the version in force, or
// nil if there is none.
func (f *configFile) succeed(current *admin.Version, site string) (*configFile, error) {
	var before *config.Config
	if current != nil {
		before = current.Config
	}
	c, err := f.config.Succeed(before, site, config.Lowering)
	if err != nil {
		return nil, err
	}
	if err := c.RefuseSite(site); err != nil {
		return nil, cli.Usage(err)
	}
	next := *f
	next.config = c
	return &next, nil
}

func readConfigFile(path string) (*configFile, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // no file is no error: the configuration may be in NATS
	}
	text, err := admin.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c, err := config.Parse(text, config.Options{Name: path})
	if err != nil {
		return nil, err
	}
	return &configFile{path: path, text: text, sum: admin.Checksum(text), config: c}, nil
}

// inForce returns the file's configuration with the shares that are in force in present.
func (f *configFile) inForce(present *config.Config) *config.Config {
	if c, err := f.config.Succeed(present, "", config.Keeping); err == nil {
		return c
	}
	return f.config
}

// adoption is the configuration that a start or reload chooses, and where it comes from. Its method store puts a new
// file into NATS. That is a late step, because every running weir then follows that file, even if this start fails.
type adoption struct {
	present *admin.Version // Number is 0 until the version is stored
	former  *config.Config // in force before present; the same as present's if there is nothing to store, or no version before
	home    admin.ConfigStore
	file    *configFile // the file to store; nil if there is nothing to store
	found   string      // the checksum of a new file that says the same as the configuration in force; "" if there is none
	version uint64      // the version of former; 0 if there is none
	last    uint64      // the revision that store expects
}

// adopt decides which configuration runs. It chooses the file, unless weir considered that file last, or a rollback has
// since taken the file's text out of force. Otherwise it chooses the newest version in NATS, so that a restart keeps
// what was applied. An unreadable version in NATS counts as never applied. If the file changes nothing, no version is
// added, and store only records the file. adopt itself stores nothing.
//
// The adopted configuration has the shares of accounts that are in force at site. adopt refuses a file that would raise
// one.
func adopt(ctx context.Context, home admin.ConfigStore, file *configFile, site string) (*adoption, error) {
	current, last, err := home.Newest(ctx)
	if err != nil {
		return nil, err
	}
	if file == nil || current != nil && current.Knows(file.sum) {
		if err := home.RefuseUnread(ctx); err != nil {
			return nil, err
		}
		if current == nil {
			return nil, admin.ErrNoConfig
		}
		if err := current.Config.RefuseSite(site); err != nil {
			return nil, cli.Usage(err)
		}
		return &adoption{present: current, former: current.Config, home: home}, nil
	}
	file, err = file.succeed(current, site)
	if err != nil {
		return nil, err
	}
	if current != nil && current.Number == last && len(current.Config.Diff(file.config)) == 0 {
		return &adoption{present: current, former: current.Config, home: home, found: file.sum}, nil
	}
	found := admin.FoundFile{Sum: file.sum, After: last}
	a := &adoption{
		present: &admin.Version{Config: file.config, StoredConfig: admin.StoredConfig{
			YAML: string(file.text), From: file.path, Who: cli.User(), File: found, Vendors: file.config.Vendors(),
		}},
		former: file.config, home: home, file: file, last: last,
	}
	var before *admin.StoredConfig
	if current != nil {
		a.former, a.version, before = current.Config, current.Number, &current.StoredConfig
	}
	a.present.Order = before.After()
	a.present.Take(file.config)
	a.present.Config.Version = a.present.Order
	return a, nil
}

// past returns the configurations that ran before the adopted one, the newest first, each with the time until which it
// ran.
func (a *adoption) past(ctx context.Context) ([]pastConfig, error) {
	entries, err := a.home.History(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the configurations of before: %w", err)
	}
	var past []pastConfig
	until := time.Now()
	for _, entry := range slices.Backward(entries) {
		v, err := admin.ReadVersion(entry)
		if err != nil {
			continue // an unreadable version never ran
		}
		if a.present.Number == 0 || v.Number < a.present.Number {
			past = append(past, pastConfig{v.Config, until})
		}
		until = v.At
	}
	return past, nil
}

// pastConfig is a configuration that is no longer in force.
type pastConfig struct {
	config *config.Config
	until  time.Time
}

// formerRules returns the rules of an api in past configurations. Each has the time until which calls may have followed
// it.
func formerRules(past []pastConfig, api string) (former []bucket.Former) {
	for _, p := range past {
		if a, ok := p.config.API(api); ok {
			former = append(former, bucket.Former{Rules: a.CallRules(), Until: bucket.MicrosOf(p.until.Add(followGrace))})
		}
	}
	return former
}

// followGrace is how long after a change calls may still follow the former configuration.
const followGrace = 2 * time.Second

// tellOverruled logs that the file is not put in force although it differs from the running configuration.
func (a *adoption) tellOverruled(file *configFile, log *slog.Logger) {
	if file == nil || a.file != nil || len(a.present.Config.Diff(file.inForce(a.present.Config))) == 0 {
		return
	}
	log.Info("the running configuration differs from the file: another was applied or rolled back to since; `weir config diff` shows the difference, `weir config apply` applies the file",
		"file", file.path, "version", a.present.Number, "from", a.present.From)
}

// tellProfiles logs which vendor profiles differ between this weir and the weir that stored the version. Values may
// then differ although the text is the same.
func (a *adoption) tellProfiles(log *slog.Logger) {
	now := a.present.Config.Vendors()
	for _, vendor := range slices.Sorted(maps.Keys(now)) {
		if then := a.present.Vendors[vendor]; then != now[vendor] {
			log.Warn("the profile of a vendor has changed since the configuration was applied: `weir config show --explain` shows the values in force, "+
				"`weir config apply` confirms them", "vendor", vendor, "version", a.present.Number, "then", then, "now", now[vendor])
		}
	}
}

// tellUnits logs which limits of a new file keep a count in another unit under the same name. A start puts such a file
// in force; a running weir refuses it.
func (a *adoption) tellUnits(log *slog.Logger) {
	if err := a.former.CheckUnits(a.present.Config, a.present.From); err != nil {
		log.Warn("limits count in another unit under the same name: what was counted before is in the former unit", "err", err)
	}
}

// store stores the file as a new version, which every weir on the server follows. It returns the change to report. It
// returns nil if there was nothing to store, or if another replica with the same file was first. It fails with
// admin.ErrLostRace if an operator has changed the configuration or a share since adopt, because that change is newer
// than this start's decision.
func (a *adoption) store(ctx context.Context) (*admin.ConfigChange, error) {
	if a.found != "" {
		return nil, a.home.Found(ctx, admin.FoundFile{Sum: a.found, After: a.present.Number})
	}
	if a.file == nil {
		return nil, nil //nolint:nilnil // nothing is to be told
	}
	told := &admin.ConfigChange{Who: a.present.Who, From: a.present.From, OldVersion: a.version}
	before := a.former
	if a.version == 0 {
		before = nil
	}
	told.Changes = len(before.Diff(a.file.config))
	a.present.Changes = told.Changes
	for {
		var err error
		a.present.At = time.Now().UTC()
		if told.NewVersion, err = a.home.Put(ctx, a.present.StoredConfig, a.last); err == nil {
			a.present.Number = told.NewVersion
			return told, nil
		} else if !errors.Is(err, admin.ErrLostRace) {
			return nil, err
		}
		current, last, err := a.home.Newest(ctx)
		switch {
		case err != nil:
			return nil, err
		case current != nil && current.File.Sum == a.file.sum && len(current.Config.Diff(a.file.config)) == 0:
			a.present = current
			return nil, nil //nolint:nilnil // the process that stored it reports it
		case current != nil && (current.Number != a.version || !maps.Equal(current.Config.InForce(), a.former.InForce())):
			return nil, fmt.Errorf("%w, while weir started with %s: it stays as it is; look at `weir config show`, and start again to put the file in force",
				admin.ErrLostRace, a.file.path)
		}
		a.last, a.present.File.After = last, last // the newest version cannot be read: replace it
		if !stream.Sleep(ctx, storeAgain) {       // or the replica that was asked lags
			return nil, context.Cause(ctx)
		}
	}
}

// storeAgain is how long store waits before it tries again.
const storeAgain = 50 * time.Millisecond
