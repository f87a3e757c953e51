// Package board keeps what replicas know of keys in PostgreSQL, so that each
// soon knows what any of them does.
//
// Nobody waits for a board. What is told is written soon; what others told is
// handed over soon, at the latest half a second after they did. While the
// database is out of reach, what is told is kept, the newest of each fact, and
// written afterwards.
package board
