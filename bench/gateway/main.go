// Command gateway measures what Usher costs a request: beside Caddy's own
// reverse_proxy, in the same run, with no policy, one and two, in a process of
// their own and inline. The gateways are the real executable; the provider
// answers at once, so that nothing hides what they cost. It needs Linux.
//
//	go run ./bench/gateway
//	go run ./bench/gateway -stream -c 16 -keys 200
//
// All rows are measured in turns, several times, and the medians are shown.
// Figures of one machine at one moment: compare rows of one run.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/usherproxy/usher/bench/gateway/internal/gateway"
	"github.com/usherproxy/usher/bench/gateway/internal/load"
	"github.com/usherproxy/usher/bench/gateway/internal/provider"
)

type options struct {
	connections []int
	keys        int
	rounds      int
	warmUp      time.Duration
	measure     time.Duration
	target      load.Target
	executable  string
	only        string
}

func main() {
	provider.Main()
	var o options
	c := flag.String("c", "1,16,128", "how many `connections` ask at once")
	flag.IntVar(&o.keys, "keys", 2, "how many keys the provider has")
	flag.IntVar(&o.rounds, "rounds", 3, "how often each row is measured")
	flag.DurationVar(&o.warmUp, "warm", 300*time.Millisecond, "how long to go on before anything is measured")
	flag.DurationVar(&o.measure, "time", 1500*time.Millisecond, "how long each measurement takes")
	flag.BoolVar(&o.target.Stream, "stream", false, "ask for streams of 20 events")
	flag.IntVar(&o.target.Bytes, "bytes", 1024, "size of a request")
	flag.StringVar(&o.executable, "usher", "", "an `executable` to measure; default: built from this source")
	flag.StringVar(&o.only, "only", "", "measure only the modes whose `name` contains this, and Caddy's")
	flag.Parse()
	o.target.Path, o.target.Model = "/v1/chat/completions", "m"
	err := func() (err error) {
		if o.connections, err = numbers(*c); err != nil {
			return err
		}
		if o.keys < 1 || o.rounds < 1 || o.measure <= 0 {
			return errors.New("-keys, -rounds and -time must be positive")
		}
		return o.run()
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

func numbers(list string) (all []int, err error) {
	for f := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(f))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a number above 0", f)
		}
		all = append(all, n)
	}
	return all, nil
}

// run measures all modes and prints the table.
func (o *options) run() error {
	folder, err := os.MkdirTemp("", "usher-bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if o.executable == "" {
		if o.executable, err = gateway.Build(folder); err != nil {
			return err
		}
	}
	upstream, end, err := provider.Start()
	if err != nil {
		return err
	}
	defer end()
	table := &table{options: o}
	for i, m := range modes {
		if i > 0 && !strings.Contains(m.name, o.only) {
			continue
		}
		g, err := gateway.Start(o.executable, filepath.Join(folder, strconv.Itoa(i)), func(port int) string {
			return m.caddyfile(port, upstream, o.keys)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		defer g.Stop()
		table.rows = append(table.rows, &row{mode: m, gateway: g, samples: make(map[int][]sample)})
	}
	for range o.rounds {
		for _, c := range o.connections {
			for _, r := range table.rows {
				if err := r.measure(o, c); err != nil {
					return fmt.Errorf("%s with %d connections: %w", r.mode.name, c, err)
				}
			}
		}
	}
	return table.print(os.Stdout)
}

// measure takes one sample.
func (r *row) measure(o *options, connections int) error {
	target := o.target
	target.Addr = r.gateway.Addr
	var before time.Duration
	var cpuErr error
	result, err := load.Closed(target, connections, o.warmUp, o.measure, func() { before, cpuErr = r.gateway.CPU() })
	if err != nil {
		return err
	}
	after, err := r.gateway.CPU()
	if err := errors.Join(err, cpuErr); err != nil {
		return err
	}
	r.samples[connections] = append(r.samples[connections], sample{
		p50: result.P50, p99: result.P99, perSecond: float64(result.Requests) / result.Seconds,
		cpu: (after - before) / time.Duration(result.Requests),
	})
	return nil
}
