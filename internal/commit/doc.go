// Package commit finds the commit point of an answer: the moment up to which
// another candidate may still serve the request, because nothing of this one
// has reached the caller.
//
// A provider may answer 200 and tell in the first event that it is overloaded,
// or send nothing but comments and then end. A [Gate] therefore holds the
// beginning of an answer of success back until it knows better, which is one
// of these, whatever comes first:
//
//   - the first content of a stream, or the whole of a JSON text: the answer is
//     committed;
//   - an error in place of content, or an end without any: it failed;
//   - an error of the connection: it failed;
//   - as many bytes as are held at most: it is committed;
//   - the longest time that is waited: it is committed. So a caller sees the
//     header of an answer, and whatever has come with it, no later than this,
//     and comments that keep a line open pass from then on.
//
// The invariants:
//
//  1. The bytes that come out are those that went in, in whatever pieces.
//  2. After the commit point nothing waits: what was held comes with the first
//     reads, and each further piece as soon as the provider has sent it.
//  3. No goroutine outlives Close of the answer's body.
package commit
