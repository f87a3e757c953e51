// Package policy is the contract between Usher and its policies.
//
// Usher asks two questions about every AI request, and lets policies answer
// them:
//
//   - Selection: which candidates may serve the request, in which order, and
//     why not the others? A [Selector] answers.
//   - Admission: may the request start now, and on which of those candidates,
//     or must it wait its turn? An [Admitter] answers with a [Lease] or with a
//     [Rejection].
//
// A policy that also implements [Observer] hears how each attempt ended.
//
// The package holds plain types and interfaces and imports nothing but the
// standard library, so a policy can be written and tested without a proxy, a
// process or a network. Package sdk turns a policy into a plugin.
//
// # Contract
//
// All methods must be safe for concurrent use, and must return soon after
// their context ends. Arguments are read-only and must not be kept after the
// call, except by [Admitter.Admit] and [Restorer.Restore], which may keep what
// they were given until the lease is released. Times come from the host's
// clock. Counts of what runs are the host's business: a policy finds them in
// [Load] and [Scope], and never has to count for itself unless it is an
// Admitter that enforces a limit.
//
// # Secrets
//
// No type of this package ever holds a secret. Keys and callers are named by
// ID. Headers and the body of a request are absent unless the operator granted
// them to the plugin.
package policy
