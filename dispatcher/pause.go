package dispatcher

import (
	"errors"
	"maps"

	"weir/dispatcher/schedule"
)

// MaxPauses bounds the keys of an api that are paused one by one.
const MaxPauses = 10_000

// ErrTooManyPauses refuses to pause one more key.
var ErrTooManyPauses = errors.New("10,000 keys of the api are paused: pause the api")

// Pause keeps a key of an api, or with "" the whole api, from being called from now on: calls that run may end. It may
// come before the api's worker.
func (d *Dispatcher) Pause(api, key string, p schedule.Pause) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.pauses[api]
	if of == nil {
		of = map[string]schedule.Pause{}
		d.pauses[api] = of
	}
	if _, known := of[key]; !known && len(of) > MaxPauses {
		return ErrTooManyPauses
	}
	of[key] = p
	for _, w := range d.workers {
		if w.name == api {
			w.update(func(s *schedule.Schedule) { s.Pause(key, p) })
		}
	}
	return nil
}

// Resume ends a pause. What an answer of the api or a limit holds besides goes on holding.
func (d *Dispatcher) Resume(api, key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.pauses[api], key)
	for _, w := range d.workers {
		if w.name == api {
			w.update(func(s *schedule.Schedule) { s.Resume(key, w.now()) })
		}
	}
}

// TryNow makes an api whose calls keep failing be called once at once instead of when its breaker's time is over, and reports
// whether there was anything to try. It fails with ErrNoAPI.
func (d *Dispatcher) TryNow(api string) (tries bool, err error) {
	w := d.worker(api)
	if w == nil {
		return false, ErrNoAPI
	}
	w.update(func(s *schedule.Schedule) { tries = s.TryNow(w.now()) })
	return tries, nil
}

// TryDenied makes every api that denies weir be called once at once: the credentials may be others now.
func (d *Dispatcher) TryDenied() {
	for _, w := range d.workersNow() {
		w.update(func(s *schedule.Schedule) { s.EndDenial(w.now()) })
	}
}

// Pauses are those of an api that are in force here, by key, "" for the whole api.
func (d *Dispatcher) Pauses(api string) map[string]schedule.Pause {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.pauses[api])
}
