// Package keys is the default selection policy: it decides which provider keys
// may serve a request, in which order, and why not the others. Its README is
// the manual.
//
// # Invariants
//
//  1. The same facts give the same verdicts, whatever the dice say.
//  2. Every eligible or busy candidate is ranked, and no skipped one.
//  3. At most one unexpired probe per open breaker is on its way.
//  4. An instant in the past never blocks.
//  5. Results that open or close no breaker, and observations of windows, may
//     arrive in any order.
//  6. Among equals, least_loaded never puts the busier one first.
package keys
