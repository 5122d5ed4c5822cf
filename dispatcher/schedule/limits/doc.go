// Package limits holds what a process knows of the limits of an api.
//
// Shared has the limits that keys share. A store decides about them. Shared remembers what was granted, refused and
// settled, to say what a call takes, how soon a limit lets calls start (limit.go), and how much of it is used (use.go).
// Replica has the limits that a process has for itself, and decides about them (replica.go). Grants tell the calls that
// were granted under the present rules from earlier ones (grants.go). Of a job the package knows only its Call.
package limits
