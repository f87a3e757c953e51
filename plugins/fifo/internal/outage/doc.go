// Package outage goes on admitting while the store that replicas share is out of
// reach.
//
// # How it goes on
//
// While the shared store answers, it decides, and this package only remembers
// what runs. When it is out of reach, the process goes on alone: with what it runs, and
// with its share of each limit. The shares of all replicas that were seen last add up to
// the limit, so what is admitted alone is never more than that. What ran before in
// excess of a share goes on, too; until it has ended, more may run than the limit, see
// [Mode]. Who waited in the shared queue waits in one of the process, in the same order.
//
// # How it comes back
//
// As soon as the shared store answers, nobody is admitted alone any more, and the store is
// told what was. It admits nobody for this process until others had the time to
// notice, too, and to tell what they run. Then those who waited meanwhile join the shared
// queue, in the order of their arrival. So nothing is admitted beyond a limit on
// the way back, and the store is asked by one process at one moment and by another
// at another.
package outage
