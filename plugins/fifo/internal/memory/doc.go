// Package memory is the store that keeps leases and queues in this process.
package memory
