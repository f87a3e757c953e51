// Package load is what one replica does in a benchmark: it opens the policy as
// a gateway would, through its configuration, and lets callers ask it.
package load
