// Package pluginhost runs plugin processes and keeps what they must not lose.
//
// A [Plugin] is one executable under supervision: it is started, restarted
// with back-off when it dies or hangs, and stopped when nobody uses it. The
// host of the tickets is the Plugin and not the process. What holds:
//
//  1. A request that is being proxied does not notice the death of a process.
//  2. A request that waits is asked for again from the next process, which has
//     been told of all that run and all that wait before it may admit anybody.
//  3. What a process has answered is noted before the next one is set up.
//  4. A release and a cancel stay in a journal until a process has acknowledged
//     them; so does an observation, unless there are very many.
//  5. A question that kills process after process is given up. No configuration
//     is part of a restart before the plugin has accepted it.
//  6. No process outlives its host: it ends with its life line, and on Linux
//     with the thread that started it.
//  7. A process that does not end when it is told to is killed, and on Linux
//     what it started ends with it in any case.
//  8. Nothing that a process writes hangs it or harms the host.
//
// What the plugin does is its [State], of which there are few.
//
// A process gives way to the next one in four steps: it is taken out of
// service, so that calls wait for the next one; it is ended; the calls that it
// has answered are noted; and the next one gets its catalogs, its instances and
// its tickets. Then the waiting calls go on.
package pluginhost
