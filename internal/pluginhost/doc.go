// Package pluginhost runs plugin processes and keeps what they must not lose.
//
// A [Plugin] is one executable under supervision: it is started, restarted
// with back-off when it dies or hangs, and stopped when nobody uses it. The
// host of the tickets is the Plugin and not the process:
//
//  1. A request that is being proxied does not notice the death of a process.
//  2. A request that waits is asked for again from the next process, which has
//     been told of all that run and all that wait before it may admit anybody.
//  3. A release, a cancel and an observation stay in a journal until a process
//     has acknowledged them.
//  4. No process outlives its host: it ends with its life line, and on Linux
//     with the thread that started it; see [spawn].
//  5. A process that does not end when it is told to is killed with its group.
package pluginhost
