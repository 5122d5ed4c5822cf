// Package certtest makes certificates for tests: an authority, and certificates that it signs for this machine.
package certtest
