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
//     passes nobody whose place its replica knows of.
//  3. Who begins to wait recalls, by the entry that gives him his place, all credits
//     of all that he may need. A replica that has read it spends no more of them; it
//     answers at once, by returning what is idle and saying that the rest is in use,
//     returns that as it comes free, and is lent no more as long as somebody waits.
//     His place is binding, and he is told that he waits, when all have answered:
//     from then on nobody passes him. A notification wakes the replicas for that; if
//     it is lost, they read every second while they have credits.
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
// # Heirs
//
// A replica that ends a lease knows who is going to get what it held, if the first
// of all who wait for any of it is one of its own, and takes nothing else, on his
// best candidate. It lets him run at once, and tells the log with its next step that
// the lease has ended and who has inherited it. That is right, because
//
//  1. What the heir takes is what the lease held, and the log gives it to nobody in
//     between: the end of the one and the beginning of the other are one command. If
//     the log has let the heir start meanwhile, on something else, that is free by
//     the command.
//  2. The order point of the heir is the end of what his replica has read of the log;
//     the command names that entry. There, nobody who comes before him waits for
//     anything that he takes, but for those of his own replica that have left or
//     have inherited already.
//  3. Nor is there anybody of his own replica who might come before him: none that
//     has asked the log and has no answer, and none that may come to wait for what
//     the heir takes because of something that the replica has ended and that the
//     log has not heard of.
//
// Nor does an heir pass anybody else whose place is binding. Whom a replica has not
// read of comes later than all whom it knows, or has a higher priority, or has had
// his place before, such as after a failover. A replica has heirs only for 25 ms after it
// has read the log, and none of a priority below 0. The places of those who have a
// higher priority, or had their places before, are binding 25 ms after their entry.
//
// # Publishing
//
// While anybody of another replica waits, a step also publishes its entry: it tells
// it to all that listen, in a transaction of its own, which is sent with the step and
// begins when that is on disk. So who gets a slot that was released elsewhere starts one
// round trip of the other replica after its release, and reads nothing. That is a
// help only. Who hears an entry applies it if it follows the last one that was
// applied, which it names, and if the replica believes in its lease. Otherwise a step
// reads it, as if nothing had come: entries that come too early wait 20 ms for those
// before them. What was heard does not count as having read the log, for the order of
// heirs.
//
// What costs is the number of entries: each is a round trip, and wakes everybody. So
// a replica rests after a step that was published for as long as that took, at
// most 5 ms, and says more with the next one.
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
// learns of it at its next step, before which it starts nobody, by its own clock. It
// joins again, and brings those who wait, with their places, and what it runs. That
// goes on where there is room, and is revoked where others have taken it.
//
// A replica that hears nothing at all of the database revokes what it runs 7 seconds
// after its last step, by its own clock, and so at least 1.4 seconds before others may
// take it for dead. It cannot know whether they hear more. If the database is down,
// and the machine that it runs on says so, or if it answers with an error, others
// hear the same, nobody takes anybody for dead, and what runs goes on.
//
// What cannot be revoked, because its host did not say how, goes on in any case, and
// is counted, even beyond a limit. So is what a process takes over from one before
// it, and what runs when the database has lost the end of the log.
//
// A step of unknown outcome is tried again under the same number, and is
// appended once. A notification wakes a replica for whom there is something to
// read, if it does not bring that itself. If it is lost, the replica finds out by itself, as it reads every second
// while somebody waits.
//
// Replicas whose queues decide by other rules, or that store commands in another
// form, have rules of another number and do not share a log. It has the number of those who
// have a lease; a replica with another one cannot join until none of them is left, not
// even one whose lease has ended less than the length of a lease ago. Then it
// begins a new log.
//
// From time to time a replica stores the state that the log has led to, from
// which others begin, and old entries go.
package postgres
