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
