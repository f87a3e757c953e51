package pluginhost_test

import (
	"testing"
	"time"
)

// BenchmarkDecide measures a round trip that selects and admits, whose release
// is posted.
func BenchmarkDecide(b *testing.B) {
	w := newWorld(b, `{"silent": true}`)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		r := w.request()
		if err := w.admit(ctx, r); err != nil {
			b.Fatal(err)
		}
		w.release(r)
	}
	b.StopTimer()
	w.holds(b, 0, 0)
}

// BenchmarkDecideInParallel measures the same for many requests at once, none
// of which has to wait.
func BenchmarkDecideInParallel(b *testing.B) {
	w := newWorld(b, `{"silent": true}`)
	w.catalog = newCatalogOf(b, 1_000_000, "wide")
	if err := w.AddCatalog(within(b), w.catalog); err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	b.SetParallelism(16)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := w.request()
			if err := w.admit(ctx, r); err != nil {
				b.Error(err)
				return
			}
			w.release(r)
		}
	})
	b.StopTimer()
	w.holds(b, 0, 0)
}

// BenchmarkStart measures how long it takes until a plugin serves, and until it
// has ended.
func BenchmarkStart(b *testing.B) {
	var starting time.Duration
	for b.Loop() {
		began := time.Now()
		p, _ := startPlugin(b)
		starting += time.Since(began)
		closePlugin(p)
	}
	b.ReportMetric(float64(starting.Microseconds())/float64(b.N)/1000, "ms/start")
}

// BenchmarkOutage measures how long a request has to wait that comes when the
// process is killed.
func BenchmarkOutage(b *testing.B) {
	var outage time.Duration
	for b.Loop() {
		w := newWorld(b, `{"silent": true}`)
		w.kill(b)
		began := time.Now()
		w.release(w.run(b))
		outage += time.Since(began)
		closePlugin(w.Plugin)
	}
	b.ReportMetric(float64(outage.Microseconds())/float64(b.N)/1000, "ms/outage")
}
