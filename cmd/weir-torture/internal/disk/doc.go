// Package disk makes file systems that fail as disks do: a Disk fills up, and a Drive loses its power. Both exist only on
// Linux, for a process that may mount.
package disk
