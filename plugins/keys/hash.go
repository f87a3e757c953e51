package keys

import (
	"math"
	"time"
)

// ticket draws a candidate's number by its hash; the smallest wins. It is
// distributed exponentially, at the rate of the weight: so the winner among any
// set of candidates is drawn by weight, and with the same seed, a candidate that
// leaves the set moves no other. Positive numbers are ordered as their bits are.
func ticket(drawn uint64, weight int) uint64 {
	return math.Float64bits(-math.Log(uniform(drawn)) / float64(max(weight, 1)))
}

// jitter returns between half of d and all of d, by the dice of id.
func jitter(d time.Duration, id string) time.Duration {
	return d - time.Duration(float64(d)/2*uniform(hash(0, id)))
}

// uniform maps h to (0, 1].
func uniform(h uint64) float64 { return float64(h>>11+1) / (1 << 53) }

// hash returns FNV-1a of s from the given start on, mixed by the finalizer of
// SplitMix64. It is the same in every process.
func hash(start uint64, s string) uint64 {
	h := mix(start) ^ 0xcbf29ce484222325
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return mix(h)
}

func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
