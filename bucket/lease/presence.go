package lease

import "strings"

// A replica that merely cannot be reached continues its calls; a replica whose process has ended does not. Only another
// process on the same machine may be able to distinguish the two, by what the kernel releases with a process: for
// example the successor that the supervisor or the kubelet starts. So a session's name says which process it belongs
// to.

// Presence reports whether processes exist. Its methods do not block for long, and are safe for concurrent use.
type Presence interface {
	// Name returns the name of this process's life, without '-', which is never used again. It is "" if no other
	// process could find out that this one has ended.
	Name() string
	// Gone reports whether the process with this name is known to have ended.
	Gone(name string) bool
}

// Show makes the sessions that begin from now on name this process, and lets the registry look for the processes of
// other sessions. It must be called before any other use of the registry.
func (r *Registry) Show(p Presence) { r.presence = p }

// nameSession names a session so that other replicas can find out whether its process exists, if that is possible.
func (r *Registry) nameSession(session string) string {
	if r.presence == nil || r.presence.Name() == "" {
		return session
	}
	return session + "-" + r.presence.Name()
}

// Gone reports whether the process of a session is known to have ended, and so all its calls and renewals.
func (r *Registry) Gone(session string) bool {
	_, name, named := strings.Cut(session, "-")
	return named && r.presence != nil && r.presence.Gone(name)
}
