package queue

import (
	"slices"

	"weir/bucket"
)

// Appointment is a stored job that must not be called before a time.
type Appointment struct {
	Seq       uint64
	NotBefore bucket.Micros
}

// appointments holds, by key, the appointments that this process has stored and the owner may not have read yet.
// Without them a full bucket of such jobs would look to the owner as if it had room at once. The lock of the
// partition's contents guards it.
type appointments struct {
	unread map[string][]Appointment
	read   uint64 // the last appointment that the owner has received
}

func newAppointments() appointments { return appointments{unread: map[string][]Appointment{}} }

// store notes an appointment that was just stored, unless the owner has read it before the stream's answer came.
func (a *appointments) store(key string, one Appointment) {
	if one.Seq > a.read {
		a.unread[key] = append(a.unread[key], one)
	}
}

// got notes that the owner has received the appointment of the key with the sequence seq, and all jobs before it.
func (a *appointments) got(key string, seq uint64) {
	a.read = seq
	a.remove(key, func(one Appointment) bool { return one.Seq <= seq })
}

func (a *appointments) remove(key string, gone func(Appointment) bool) {
	if left := slices.DeleteFunc(a.unread[key], gone); len(left) > 0 {
		a.unread[key] = left
	} else {
		delete(a.unread, key)
	}
}
