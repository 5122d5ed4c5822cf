package desk

import (
	"errors"
	"maps"

	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
)

// MaxPauses bounds how many keys of an api may be paused, not counting the pause of the whole api.
const MaxPauses = 10_000

// ErrTooManyPauses is returned by Pause if MaxPauses keys of the api are paused already.
var ErrTooManyPauses = errors.New("10,000 keys of the api are paused: pause the api")

// Pause stops calls of a key of an api. If key is "", it stops calls of the whole api. Running calls go on. Pause may
// be called before the api is added. It fails with ErrTooManyPauses only for a key: the whole api can always be paused.
func (d *Desk) Pause(api, key string, p schedule.Pause) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.pauses[api]
	if of == nil {
		of = map[string]schedule.Pause{}
		d.pauses[api] = of
	}
	singles := len(of)
	if _, whole := of[""]; whole {
		singles--
	}
	if _, known := of[key]; !known && key != "" && singles >= MaxPauses {
		return ErrTooManyPauses
	}
	of[key] = p
	for _, w := range d.apis {
		if w.Name == api {
			w.Update(func(s *schedule.Schedule) {
				s.Holds.Pause(key, p)
				w.LeaveIdleLocked(s.Queues.Find(key))
			})
		}
	}
	return nil
}

// Resume ends a pause. Holds that the api's answers or limits caused stay in force.
func (d *Desk) Resume(api, key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.pauses[api], key)
	for _, w := range d.apis {
		if w.Name == api {
			w.Update(func(s *schedule.Schedule) { s.Holds.Resume(key, w.Now()) })
		}
	}
}

// TryNow makes one call of an api at once, without waiting until its open breaker allows one. It reports whether the
// breaker was open. It fails with ErrNoAPI if the api is not dispatched here.
func (d *Desk) TryNow(api string) (tries bool, err error) {
	w := d.api(api)
	if w == nil {
		return false, lane.ErrNoAPI
	}
	w.Update(func(s *schedule.Schedule) { tries = s.Holds.TryNow(w.Now()) })
	return tries, nil
}

// TryDenied makes one call at once of every api that denies weir, because the credentials may have changed.
func (d *Desk) TryDenied() {
	for _, w := range d.all() {
		w.Update(func(s *schedule.Schedule) {
			if now := w.Now(); s.At(now).Denied() {
				s.Holds.TryNow(now)
			}
		})
	}
}

// Pauses returns the pauses of an api that are in force here, by key. "" stands for the whole api.
func (d *Desk) Pauses(api string) map[string]schedule.Pause {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.pauses[api])
}
