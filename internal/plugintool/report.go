package plugintool

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/conformance"
)

// A report prints results as they come, and counts them.
type report struct {
	out                     io.Writer
	err                     error // of the first write that failed
	passed, skipped, failed int
}

func (r *report) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(r.out, format, args...); err != nil && r.err == nil {
		r.err = err
	}
}

// suite runs a suite and prints a line for each check.
func (r *report) suite(ctx context.Context, s conformance.Suite) {
	r.printf("  %s\n", s.Name)
	for _, c := range s.Checks {
		if ctx.Err() != nil {
			r.failed++ // nobody may take what was not tested for right
			return
		}
		result := conformance.Run(ctx, c)
		word := "ok"
		switch {
		case result.Failed:
			word = "FAIL"
			r.failed++
		case result.Skipped:
			word = "skip"
			r.skipped++
		default:
			r.passed++
		}
		r.printf("    %-4s  %s\n", word, c.Name)
		if !result.Failed && !result.Skipped {
			continue
		}
		for _, line := range result.Report {
			r.printf("          %s\n", line)
		}
	}
}

// end prints the sum and returns the verdict.
func (r *report) end() error {
	word := "PASS"
	if r.failed > 0 {
		word = "FAIL"
	}
	r.printf("\n%s: %d passed, %d skipped, %d failed\n", word, r.passed, r.skipped, r.failed)
	if r.failed > 0 {
		return ErrFailed
	}
	return r.err
}

// latency times calls, one after the other, and prints their percentiles.
func (r *report) latency(ctx context.Context, x conformance.Target, offered sdk.Policies, calls int) {
	var times map[string][]time.Duration
	result := conformance.Run(ctx, conformance.Check{Name: "latency", Run: func(t conformance.T) {
		times = conformance.Latencies(t, x.Build(t), calls)
	}})
	r.printf("  latency of %d calls, one after the other\n", calls)
	if result.Failed {
		r.failed++
		for _, line := range result.Report {
			r.printf("    FAIL  %s\n", line)
		}
		return
	}
	for _, what := range []string{"select", "admit", "release", "observe"} {
		if all := times[what]; len(all) > 0 {
			slices.Sort(all)
			at := func(q float64) time.Duration { return all[int(q*float64(len(all)-1))].Round(time.Microsecond) }
			r.printf("    %-8s  p50 %s, p90 %s, p99 %s, most %s\n", what, at(0.5), at(0.9), at(0.99), at(1))
		}
	}
}
