package bucket

import "slices"

// inTurn makes an ask wait if other replicas come before its replica for a slot, or for the limit that refused the
// slot. If no replica comes before, inTurn charges the asking replica for the slot. Replicas of the same api compete at
// all limits, replicas of other apis only at the limits of the account.
func (e *engine) inTurn(now, at Micros, a *Ask, wait *Wait) {
	lines := e.standing()
	service, horizon := float64(max(1, a.Service)), Micros(ceilMicros(a.Horizon))
	switch {
	case wait.Never || wait.Limit == OwnRate || wait.Limit == OwnCheckpoint:
		return
	case wait.Limit == "":
		for _, within := range lines.scopes() {
			b := lines.before(now, at, max(now, at-horizon), service, within)
			if b.until == 0 {
				continue
			}
			if scarce := e.scarce(now, now+horizon, a, b.dear, within); scarce != nil {
				*wait = Wait{Limit: scarce.Name, Until: b.until}
				lines.wait(b.until, keptNothing, "", within)
				return
			}
		}
		lines.serve(now, at, service)
	default:
		i := slices.IndexFunc(e.limits, func(l placed) bool { return l.Name == wait.Limit })
		l, keep, within := &e.limits[i], keptNothing, scopeOf(&e.limits[i].Limit)
		_, periodic := l.meter.(*quotaMeter)
		periodic = periodic || wait.Excess > 0
		switch {
		case l.meter == nil:
			keep = keptPermit
		case l.Rate != nil && a.cost(l.at) > 1 && !periodic:
			if keep = keptUnits; len(lines.all) > 1 {
				wait.Until = min(wait.Until, now+dearPoll)
			}
		}
		if b := lines.before(now, wait.Until+horizon, wait.Until, service, within); b.until > wait.Until {
			wait.Until, keep = b.until, keptNothing
		}
		if periodic {
			lines.waitForPeriod(wait.Until, within)
		} else {
			lines.wait(wait.Until, keep, wait.Limit, within)
		}
	}
}

// scarce returns the first limit of a scope that has too little left: by the time reach it cannot let a call like that
// of a pass for every waiting key, or its units are kept for dear calls. It returns nil if there is no such limit.
func (e *engine) scarce(now, reach Micros, a *Ask, dear []string, within scope) *placed {
	calls := e.standing().calls(within)
	for i := range e.limits {
		l := &e.limits[i]
		if scopeOf(&l.Limit) != within {
			continue
		}
		cost := a.cost(l.at)
		units := cost * min(calls, maxCost/max(1, cost))
		switch m := l.meter.(type) {
		case nil:
			if !l.Shadow && l.of.permits.all(now)+calls > l.inFlight {
				return l
			}
		case *rateMeter:
			drained := float64(max(m.tat, now)) + float64(units-m.burst)*float64(m.interval.P)/float64(m.interval.Q)
			short := drained > float64(reach) || l.excess.short(now, reach, units)
			if !l.Shadow && cost > 0 && (short || slices.Contains(dear, l.Name)) {
				return l
			}
		default:
			if !l.Shadow && cost > 0 && (units > l.capacity || l.earliest(now, units) > reach) {
				return l
			}
		}
	}
	return nil
}
