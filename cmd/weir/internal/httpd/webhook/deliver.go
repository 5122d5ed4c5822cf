package webhook

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/config"
)

// Bounds of the tries of one post.
const (
	firstWait  = time.Second // the wait after the first failure; it doubles after each further failure
	longestTry = 5 * time.Minute
	refusedMax = 5               // the refusals after which a post may be dropped in favour of others
	wakeAfter  = time.Minute     // if the receiver accepts a post after it failed for this long, waiting posts try again at once
	lingers    = 2 * time.Second // the time that a post has to finish when the sending ends
)

// parcel is the content of one post. deliver tries to post it until the receiver accepts it or weir gives it up.
type parcel interface {
	// render returns the message for a try. If the error is a *givenUp, no message is left to send. errNotConfigured
	// and errOtherFormat end the tries. After any other error deliver calls render again.
	render(ctx context.Context, try int) (message, error)
	// until returns the time before which the last try must begin, zero for no bound. deliver calls it after render.
	until() time.Time
	size() int        // the number of events or ends in the parcel
	sequence() uint64 // the sequence of the end in the parcel; 0: the parcel has no end
	named() []any     // the attributes that identify the parcel in the log
}

// givenUp says why weir stops posting a parcel.
type givenUp struct{ outcome, why string }

// Error implements error.
func (g *givenUp) Error() string { return g.why }

// deliver posts a parcel until the receiver accepts it or weir gives it up. The first try begins no earlier than at. An
// error means that the sending must end.
func (s *sending) deliver(ctx context.Context, p parcel, at time.Time) error {
	wait, r := firstWait, refusals{}
	for try := 1; ; try++ {
		to, err := s.turn(ctx, at)
		if err != nil {
			return err
		}
		m, err := p.render(ctx, try)
		var gone *givenUp
		switch until := p.until(); {
		case errors.As(err, &gone):
		case errors.Is(err, errNotConfigured), errors.Is(err, errOtherFormat):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !until.IsZero() && !time.Now().Before(until):
			gone = &givenUp{dropped, "it is older than the callback's for"}
		}
		if gone != nil {
			s.giveUp(gone, p)
			return nil
		}
		var no *failure
		if err != nil {
			s.log.Warn("cannot read the next message to post; trying again", "err", err)
			no = &failure{}
		} else if no, err = s.try(ctx, to, m, p.size()); no == nil {
			return err
		}
		if no.refuses() && s.makesRoom(&r) {
			s.count(refused, p.size())
			s.health.gaveUp(time.Now(), p.size(), p.sequence(), no.why)
			s.log.With(p.named()...).Warn("the receiver refused a post; weir does not post it again", "tries", try, "err", no)
			return nil
		}
		if s.rest(ctx, to, p.until(), max(wait, no.retryAfter), no.retryAfter == 0) {
			wait = firstWait
		} else {
			wait = min(2*wait, longestTry)
		}
		at = s.pace.reserve(time.Now(), to)
	}
}

// try posts a message once. It returns why the receiver did not accept the message, or an error if the sending must
// end. If ctx ends during the post, the post continues for lingers at most, because the receiver may have accepted the
// message already.
func (s *sending) try(ctx context.Context, to *config.Receiver, m message, size int) (*failure, error) {
	if !s.valid() { // the lease was valid when render began
		return nil, errInDoubt
	}
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lingers, cancel) })()
	no := post(call, s.client, to, m)
	switch {
	case no == nil:
		s.count(sent, size)
		if s.health.accepted(time.Now()) {
			s.log.Info("the receiver accepts posts again")
		}
		return nil, nil //nolint:nilnil // it is accepted
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	s.failed.Inc()
	if s.health.failed(time.Now(), no.why) {
		s.log.Warn("the receiver does not accept posts; trying again until they are too old", "err", no)
	}
	return no, nil
}

// giveUp records that weir stops posting a parcel.
func (s *sending) giveUp(gone *givenUp, p parcel) {
	s.count(gone.outcome, p.size())
	s.drops.add(gone, p)
	if gone.outcome != removed {
		s.health.gaveUp(time.Now(), p.size(), p.sequence(), gone.why)
	}
}

// refusals counts the refusals of one post.
type refusals struct {
	count  int
	others uint64 // how many posts the receiver had accepted before the first refusal
}

// makesRoom counts a refusal, and reports whether to drop the post because it blocks others. If the feed has one load
// under way at a time, refusedMax refusals are enough. Otherwise another message must also wait for a place, and the
// receiver must have accepted other posts since the first refusal. A receiver that refuses everything may have the
// wrong secret.
func (s *sending) makesRoom(r *refusals) bool {
	if r.count++; r.count == 1 {
		r.others = s.health.taken()
	}
	return r.count >= refusedMax && (s.most == 1 || s.full.Load() && s.health.taken() > r.others)
}

// turn waits until at, and then returns the receiver. If the rate changes meanwhile, turn reserves a new time.
func (s *sending) turn(ctx context.Context, at time.Time) (*config.Receiver, error) {
	for to := s.receiver(); ; {
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case to == nil:
			return nil, errNotConfigured
		case !s.valid():
			return nil, errInDoubt
		case !time.Now().Before(at):
			return to, nil
		}
		stream.Sleep(ctx, min(lookEvery, time.Until(at)))
		next := s.receiver()
		if next != nil && next.Rate != to.Rate {
			at = s.pace.reserve(time.Now(), next)
		}
		to = next
	}
}

// rest waits d between two tries of a post. It ends early if the configuration changes, because the change may remove
// the cause of the failure; changed is then true. It also ends early at until. If wakes is true, it also ends early
// when the receiver accepts posts again.
func (s *sending) rest(ctx context.Context, to *config.Receiver, until time.Time, d time.Duration, wakes bool) (changed bool) {
	end, woken := time.Now().Add(d), s.health.wakes()
	if !until.IsZero() && until.Before(end) {
		end = until
	}
	for time.Now().Before(end) {
		if changed = s.receiver() != to; changed || wakes && s.health.wakes() != woken {
			return changed
		}
		if !stream.Sleep(ctx, min(lookEvery, time.Until(end))) {
			return false
		}
	}
	return s.receiver() != to
}

// pace reserves times for the tries of all posts of a feed. It is safe for concurrent use.
type pace struct {
	mu    sync.Mutex // guards the fields below
	next  time.Time
	every time.Duration
}

// reserve returns the time for the next try. A change of the rate discards earlier reservations.
func (p *pace) reserve(now time.Time, to *config.Receiver) time.Time {
	if to == nil {
		return now // the try will find that there is no receiver
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	every := to.Rate.Per / time.Duration(to.Rate.Count)
	if every != p.every || p.next.Before(now) {
		p.next, p.every = now, every
	}
	at := p.next
	p.next = at.Add(every)
	return at
}

// health records whether a receiver accepts posts. It is safe for concurrent use.
type health struct {
	mu    sync.Mutex // guards the fields below
	since time.Time  // when the first failure since the last success came; zero: no failure since
	why   string
	woken int    // how often the receiver has accepted a post after it failed for wakeAfter
	posts uint64 // accepted posts
	given given
}

// gaveUp records that n messages were given up. If they are one end, end is its sequence; otherwise end is 0.
func (h *health) gaveUp(now time.Time, n int, end uint64, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.given = h.given.and(n, givenEnd{end, now.UTC().Truncate(time.Second), why})
}

// forgetUpTo records that the list of given-up ends may lack ends at or before seq.
func (h *health) forgetUpTo(seq uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.given.Unlisted = max(h.given.Unlisted, seq)
}

// forget clears a recorded failure. look calls it when no post waits, because then no try would show that the receiver
// works again.
func (h *health) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since, h.why = time.Time{}, ""
}

// failed records a failure. It reports whether this is the first failure since a success.
func (h *health) failed(now time.Time, why string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.since.IsZero()
	if h.why = why; first {
		h.since = now
	}
	return first
}

// accepted records a success. It reports whether this is the first success since a failure.
func (h *health) accepted(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := !h.since.IsZero()
	if first && now.Sub(h.since) >= wakeAfter {
		h.woken++
	}
	h.since, h.why = time.Time{}, ""
	h.posts++
	return first
}

// taken returns how many posts the receiver has accepted.
func (h *health) taken() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.posts
}

// state returns since when and why the receiver fails, and what weir gave up. since is zero if the receiver does not
// fail.
func (h *health) state() (since time.Time, why string, g given) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since, h.why, h.given
}

// wakes returns a number that grows when waiting posts should be tried at once.
func (h *health) wakes() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.woken
}

// drops collects the parcels that were given up since the last log lines about such parcels. Many parcels may be given
// up at once, so the log names only the first one for each reason. drops is safe for concurrent use.
type drops struct {
	mu    sync.Mutex // guards the fields below
	count map[givenUp]int
	first map[givenUp][]any
}

func (d *drops) add(g *givenUp, p parcel) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == nil {
		d.count, d.first = map[givenUp]int{}, map[givenUp][]any{}
	}
	if d.count[*g] == 0 {
		d.first[*g] = p.named()
	}
	d.count[*g] += p.size()
}

// tell logs the collected parcels, and then forgets them.
func (d *drops) tell(log *slog.Logger) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for g, n := range d.count {
		level := slog.LevelWarn
		if g.outcome == removed {
			level = slog.LevelInfo
		}
		log.With(d.first[g]...).Log(context.Background(), level, "given up before the receiver accepted it", "count", n, "why", g.why)
	}
	clear(d.count)
}
