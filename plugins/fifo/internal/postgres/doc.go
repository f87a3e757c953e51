// Package postgres keeps leases and queues in a database, for all replicas that
// use it.
//
// # How it works
//
// The database holds a log of what replicas ask for: admit, release, forget. Each
// replica appends its own, reads everybody's, and applies all entries in their
// order to a [queue.Queue] of its own. A queue decides by nothing but what it is
// told, so all of them decide the same, and nobody has to ask anybody: a request
// is admitted once its entry, and what came before it, is read. Appending and
// reading are one statement, for all that a process has to say at that moment.
//
// # Credits
//
// What a lease held may be lent to the replica that ran it, when the lease ends.
// For the queue, what is lent counts as taken. Its replica lets requests start on
// it and end, and says nothing of them. That is right, because
//
//  1. Only what the log has lent is spent, each unit by one request at a time, and a
//     unit goes back only after it was put aside here: so what runs on credits and
//     under leases of the log, and what is lent and idle, is within the limit of
//     every scope at every instant. A request spends on all its scopes at once, or
//     not at all.
//  2. The order point of a request that starts on credits is the end of what its
//     replica has read of the log. There, nobody waits who may need any of what it
//     takes: not what others wait for now, but all that they may come to need. So it
//     passes nobody who has a place before it.
//  3. Who begins to wait recalls, by the entry that gives him his place, all credits
//     of all that he may need. A replica that has read it spends no more of them; it
//     returns at once what is idle, and the rest as it comes free, and is lent no
//     more as long as somebody waits. So a replica passes him at most for as long
//     as it has not read his entry: a notification wakes it for that, and if that
//     is lost, it reads every second while it has credits.
//  4. In its own replica, nobody passes him even for that long: what a request asks
//     the log for, and its replica has, goes back in the same entry, so that it is
//     free for the request; what the replica has not, it spends on nobody who
//     comes later until the request has its answer.
//  5. A replica spends credits for half the length of its lease after a step that
//     has succeeded, by its own clock, which goes on while it is frozen. After any
//     step the lease lasts 0.7 of its length at least. So a replica that others take
//     for dead has stopped before.
//  6. With the lease of a replica its credits end; it brings what runs on them to
//     the log, like all that it runs.
//
// A request that may not wait is refused if there is no room in the log. If room is
// lent to others, it waits until they have returned it or have said that they use
// it, or for a second.
//
// Only concurrency scopes are lent. What is taken of a window comes back by time
// alone, so it cannot be used again, and a unit that is lent and idle would have to
// count from when it is used, which nobody else knows. Requests with a scope of a
// rate ask the log.
//
// Credits grow by use: a replica has as many as it ran at once. Nothing is lent of
// what somebody has waited for in the last second, so that it does not go back and
// forth. What was not in use at any time of ten seconds goes back.
//
// # The lock
//
// The one lock is that of appending. It is held for one statement and is
// released with it, whatever becomes of the client. The time of an entry is that of
// the database, and the queues know no other clock.
//
// # What may fail
//
// A replica has a lease. When it runs out, the next one that comes ends it by an
// entry, and with it ends all that the replica runs and waits for. The replica
// learns of it at its next step. It joins again and brings what it really runs,
// even beyond a limit, and those who wait, with their places.
//
// A step of unknown outcome is tried again under the same number, and is
// appended once. A notification wakes a replica for whom there is something to
// read. If it is lost, the replica finds out by itself, as it reads every second
// while somebody waits.
//
// From time to time a replica stores the state that the log has led to, from
// which others begin, and old entries go.
package postgres
