package dispatcher

import (
	"errors"
	"testing"
	"time"

	"weir/dispatcher/ownership"
)

// TestContact checks what makes a replica leave an api's partitions to other replicas, and what brings it back.
func TestContact(t *testing.T) {
	const timeout = time.Second
	now := time.Unix(1_700_000_000, 0)
	reached, alone := ownership.Others{Reach: true, Stay: true}, ownership.Others{}
	gone := errors.New("gone")
	fail := func(c *contact, n int) {
		for range n {
			c.note(false, now)
			now = now.Add(contactLost / 2)
		}
	}
	judged := func(c *contact, o ownership.Others, want bool) {
		t.Helper()
		if c.judge(o, timeout, now); c.cutOff != want {
			t.Fatalf("cut off: %v, %+v", c.cutOff, c)
		}
	}

	c := &contact{}
	c.note(true, now)
	if !c.reaches(now) || c.reaches(now.Add(contactFresh)) {
		t.Error("an answer proves that the api is reached, for a while")
	}
	fail(c, contactFails-1)
	judged(c, reached, false) // too few
	fail(c, 1)
	judged(c, ownership.Others{Stay: true}, false) // no other replica says that it reaches the api: it is down for all
	c.note(true, now)
	judged(c, reached, false) // it answered
	fail(c, contactFails)
	judged(c, reached, true)
	if c.reaches(now) {
		t.Error("who left reaches nothing for others")
	}

	c.opened = now
	now = now.Add(contactRest - time.Millisecond)
	judged(c, reached, true) // too soon
	now = now.Add(time.Millisecond)
	judged(c, reached, true) // no connection for a while
	c.opened = now
	judged(c, reached, false)
	fail(c, contactFails)
	judged(c, reached, true)
	now = now.Add(contactRest)
	c.opened = now
	judged(c, reached, true) // again so soon: it stays away for twice as long
	now = now.Add(contactRest)
	c.opened = now
	judged(c, reached, false)

	now = now.Add(contactSettles + 4*timeout + time.Second)
	c.note(true, now)
	c.limits(gone, now)
	judged(c, reached, false)
	now = now.Add(contactLost)
	c.limits(gone, now)
	judged(c, reached, true) // without limits nothing is called
	judged(c, alone, false)  // there is no replica to leave anything to
	judged(c, reached, true)
	now = now.Add(contactMost)
	c.opened = now
	judged(c, reached, true) // the limits do not answer yet
	c.limits(nil, now)
	judged(c, reached, false)
	c.opened = now
	if !c.reaches(now) || c.reaches(now.Add(contactOpen)) {
		t.Error("where no call failed a connection proves that the api is reached, for a moment")
	}
	c.note(false, now)
	if c.reaches(now) {
		t.Error("a connection proves nothing where a call failed")
	}
}
