// Package queue decides who may start, on which candidate, and who waits for
// what. It is a plain data structure: it knows no clock, no lock and no
// goroutine, and every method that may change something is told what time it is.
//
// Queues that are told the same decide the same: nothing depends on the order of
// a map. Replicas that share a store rely on it. They also share snapshots, so a
// change of what a queue decides, or of what a snapshot holds, is a change of the
// rules that package postgres numbers.
//
// Loans take a part of a concurrency scope out of the queue's hands: a holder lets
// requests start on it, see package postgres. The queue lends nothing that a
// waiting ticket may need, and asks for what is lent as soon as there is one.
//
// # How it decides
//
// A scope is open to a ticket if it has room for it, and if no earlier ticket
// waits for the scope. A ticket starts on its first candidate whose scopes, and
// its own, are all open. If there is none, it waits: for the first of its own
// scopes that is not open; if they all are, for the first scope of each candidate
// that is not open; in [OrderStrict], for all its scopes.
//
// Tickets that need the same scopes stand in one line. The first of a line was
// found unable to start, so those behind it, who need the same and come later,
// are unable, too. Lines are what waits for scopes, ordered by their first
// tickets. So when a scope gets room, only the lines that wait for it have to be
// looked at, each by its first ticket, and only while there is room.
//
// All scopes that got room are looked at together, earliest ticket first. What a
// ticket takes or leaves there is of interest to later ones only. So one pass is
// enough, and after each call nobody waits who could start.
package queue
