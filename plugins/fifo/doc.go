// Package fifo is the default admission policy: it admits requests in the order
// of their arrival, within the limits of everything that they use.
//
// # Invariants
//
// Each has a test that names it by its number.
//
//  1. For every concurrency scope and every instant, what leases hold is at most
//     the limit with which the last of them was granted.
//  2. For every rate scope, what was granted within any span of the length of
//     its window is at most the limit. A reservation of tokens becomes what was
//     really used when its lease ends, and stays as it is if that is not known.
//  3. A lease holds all scopes of its request and of one candidate, the first
//     ranked one that could be had, or there is no lease. What was refused has
//     taken nothing.
//  4. Requests are served by priority, then arrival. Nobody is granted a scope
//     that an earlier request waits for; in strict_fifo, none that an earlier
//     request uses. Taking room and joining the queue is one decision.
//  5. A request is passed at most as often as its bound allows. From then on
//     nobody later takes the last room that it needs in its own scopes and in
//     those of its best candidate, where it is the earliest such request.
//  6. Nobody waits who could start. A window that has room again is noticed at
//     that instant.
//  7. Each call of Admit ends exactly once, with a lease or with an error. An end of
//     the context, a timeout and a grant that race have one winner, and what
//     the loser held is free again.
//  8. A lease ends once. Ending it again changes nothing.
//  9. A request that may not wait, or for which the queue has no place, is
//     refused at once, and one that waits too long is refused then. Retry-After
//     is computed from what is known of the line and the window.
//  10. A lowered limit ends no lease. A raised one lets those who wait start.
//  11. A restored request keeps its lease or its place. A place that nobody asks
//     for again is given up after a while.
//  12. What is kept is proportional to what runs and waits, and to the scopes that
//     were used within their windows. When all is released, nothing is left.
//  13. A failover that comes back under the same ticket with its next attempt has
//     its old place.
//  14. Replicas that share a store have one queue and one set of limits. What a
//     replica holds that is gone is free within 15 seconds. One that was taken for
//     dead goes on with what there is room for, and revokes the rest. One that
//     hears nothing revokes what it runs before it is taken for dead.
//  15. While the shared store is out of reach, nobody is admitted but where
//     on_store_error says so. What all replicas admit alone is together at most
//     each limit, beside what ran before. When the store is back, nothing is
//     admitted beyond a limit because of what was admitted alone.
//
// A [Store] keeps them; package storetest checks that it does.
package fifo
