package lease

import "strings"

// A replica that cannot be reached may continue its calls; a replica whose process has ended does not. Only a process
// on the same machine may be able to tell the two apart, by what the kernel releases when a process ends. Such a
// process is, for example, the successor that the supervisor or the kubelet starts. So a session's name says to which
// process the session belongs.

// Presence reports whether processes exist. Its methods do not block for long, and are safe for concurrent use.
type Presence interface {
	// Name returns a name of this process that is never used again. It has no '-'. It is "" if no other process could
	// find out that this process has ended.
	Name() string
	// Gone reports whether the process with this name is known to have ended.
	Gone(name string) bool
}

// Show names this process in the sessions that begin from now on, and lets the registry find out whether the processes
// of other sessions have ended. It must be called before any other use of the registry.
func (r *Registry) Show(p Presence) { r.presence = p }

// nameSession returns the session's name, with the name of its process if the process has one.
func (r *Registry) nameSession(session string) string {
	if r.presence == nil || r.presence.Name() == "" {
		return session
	}
	return session + "-" + r.presence.Name()
}

// Gone reports whether the process of a session is known to have ended. Its calls and renewals have then ended too.
func (r *Registry) Gone(session string) bool {
	_, name, named := strings.Cut(session, "-")
	return named && r.presence != nil && r.presence.Gone(name)
}
