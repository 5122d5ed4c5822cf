// Package certtest makes certificates for tests: an authority, and what it has signed for this machine until a time.
package certtest
