// Package checker finds what is wrong with admission by looking at what callers
// saw: when they asked, when they were told to wait, when they ran and on what,
// and when they said that they are done. It knows nothing of any store, and takes
// for wrong only what no correct store could have shown.
//
// # What can be seen
//
// A store holds a lease at least from the moment when Admit returns it (run) to the
// moment when Release is called (end): its decision came earlier, and it learns of
// the end later. So what callers use is never more than what the store holds, and:
//
//   - Over-admission: what is used of a scope exceeds its limit. Where limits
//     change, it is the highest that may have been in force when the last of
//     those who run was admitted.
//
//   - Order: y has passed x if x was told to wait before y was admitted, and x comes
//     first: its priority is higher, or equal and it had its place before y first
//     asked; and y took all that x needs with one of its candidates (or, in strict
//     order, anything that x uses). When exactly y was admitted cannot be seen,
//     but not before it asked, and not while one of its scopes was full.
//     When x was admitted cannot be seen either, as its answer may have been on its
//     way. But if it was admitted in order, before y ran, then it has held since
//     what it needs whatever candidate serves it. So x is taken to have held that
//     from then on, and if that exceeds a limit, the order was wrong.
//
//   - A leak: when all have ended, a scope cannot be had up to its limit.
//
//   - A lost wake-up: all that a waiting request needs for one of its candidates was
//     free for longer than it may take to notice.
//
//   - A window: more requests asked and ran within it than its limit. Nothing else is
//     said of windows, but that who waits may wait for one that may be used up.
//
//   - A rank: with one replica, a request ran on another candidate than the first one,
//     though all who asked for that at the time might have had it at once.
//
// Nothing here, nor in package fifo, claims that histories are linearizable: requests that start on
// credits, and heirs, have their place where their replica has read the log to, not
// where real time is.
//
// What is killed uses nothing from then on, but its leases are not free at once. What
// is stopped uses nothing meanwhile, and has a moment to learn that its leases were
// given to others.
package checker
