package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/usherproxy/usher/bench/gateway/internal/gateway"
)

// A table is what was measured.
type table struct {
	*options
	rows []*row
}

// A row is a mode with its samples, one for each round, by the number of
// connections.
type row struct {
	mode    mode
	gateway *gateway.Gateway
	samples map[int][]sample
}

// A sample is one measurement.
type sample struct {
	p50, p99  time.Duration
	cpu       time.Duration // of a request
	perSecond float64
}

// median returns the median over the rounds of what f makes of a row's sample
// and of that of the first row in the same round.
func (t *table) median(r *row, c int, f func(own, plain sample) float64) float64 {
	var all []float64
	for i, s := range r.samples[c] {
		all = append(all, f(s, t.rows[0].samples[c][i]))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// print prints the table.
func (t *table) print(out io.Writer) error {
	what := "answers of about 1 KiB"
	if t.target.Stream {
		what = "streams of 20 events"
	}
	fmt.Fprintf(out, "%s, requests of %d bytes, %d keys; medians of %d rounds of %s; %s\n",
		what, t.target.Bytes, t.keys, t.rounds, t.options.measure, machine())
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, c := range t.connections {
		fmt.Fprintf(w, "\nat once: %d\tp50\tp99\tp50 added\tp99 added\tCPU a request\tof caddy's\trequests/s\tof caddy's\t\n", c)
		for _, r := range t.rows {
			us := func(f func(own, plain sample) time.Duration) string {
				return fmt.Sprintf("%.0f µs", t.median(r, c, func(a, b sample) float64 { return float64(f(a, b)) / 1e3 }))
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%.0f\t%.2f\t\n", r.mode.name,
				us(func(a, _ sample) time.Duration { return a.p50 }),
				us(func(a, _ sample) time.Duration { return a.p99 }),
				us(func(a, b sample) time.Duration { return a.p50 - b.p50 }),
				us(func(a, b sample) time.Duration { return a.p99 - b.p99 }),
				us(func(a, _ sample) time.Duration { return a.cpu }),
				t.median(r, c, func(a, b sample) float64 { return float64(a.cpu) / float64(b.cpu) }),
				t.median(r, c, func(a, _ sample) float64 { return a.perSecond }),
				t.median(r, c, func(a, b sample) float64 { return a.perSecond / b.perSecond }))
		}
	}
	return w.Flush()
}

// machine says what this was measured on.
func machine() string {
	words := []string{fmt.Sprintf("%d processors", runtime.NumCPU()), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	for file, prefix := range map[string]string{"/proc/cpuinfo": "model name", "/proc/loadavg": ""} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
				if file == "/proc/loadavg" {
					rest = "load average " + strings.Join(strings.Fields(rest)[:3], " ")
				}
				words = append(words, strings.TrimLeft(rest, "\t: "))
				break
			}
		}
	}
	slices.Sort(words[3:])
	return strings.Join(words, ", ")
}
