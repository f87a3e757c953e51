// Package reference is a model of fifo admission that is too slow to be used and
// simple enough to be believed. Tests compare the real thing with it.
//
// It keeps plain lists, adds up what is used whenever it wants to know, and goes
// over all that wait, again and again, until nothing changes.
package reference
