package lease

import "strings"

// A replica that merely cannot be heard goes on with its calls; one whose process has ended does not. Who shares a machine with a replica
// (its successor, as the supervisor or the kubelet starts it, or another one) may be able to tell the two apart, by what the kernel takes
// away with a process; nobody else can. So a session's name says which process it is of.

// Presence tells whether processes are there. Its methods do not block for long, and are safe for concurrent use.
type Presence interface {
	// Name is that of this process's life, which nothing else ever has, without '-'; "" where nobody could tell that it has ended.
	Name() string
	// Gone reports whether the process of a name is known to have ended.
	Gone(name string) bool
}

// Show has the sessions that begin from now on name this process, and others be looked for by what they name. It is to be called before
// anything else is done with the registry.
func (r *Registry) Show(p Presence) { r.presence = p }

// nameSession names a session so that others can find out whether its process is there, where that is possible.
func (r *Registry) nameSession(session string) string {
	if r.presence == nil || r.presence.Name() == "" {
		return session
	}
	return session + "-" + r.presence.Name()
}

// Gone reports whether the process of a session is known to have ended, and with it every call that it made, and every renewal.
func (r *Registry) Gone(session string) bool {
	_, name, named := strings.Cut(session, "-")
	return named && r.presence != nil && r.presence.Gone(name)
}
