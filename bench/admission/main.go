// Command admission measures the admission policy as replicas use it, each a
// process, beside single-row updates on the same PostgreSQL server. It starts a
// server for itself, whose data is in memory, unless it is told of one.
//
//	go run ./bench/admission
//
// What it prints are figures of one machine at one moment. Compare rows of one run.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/usherproxy/usher/bench/admission/internal/fleet"
)

func main() {
	fleet.Main()
	replicas := flag.String("replicas", "1,2,8", "how many `processes` share the limits")
	waiters := flag.String("waiters", "1000,10000", "how many `callers` want one of 64 slots")
	only := flag.String("only", "uncontended,contended,scopes", "which `parts` to measure")
	store := flag.String("store", "postgres", "the store: postgres, or memory with one process")
	dsn := flag.String("dsn", "", "a PostgreSQL server to use instead of an own one")
	measure := flag.Duration("time", 5*time.Second, "how long to measure each row")
	flag.Parse()
	b := &bench{store: *store, measure: *measure, out: os.Stdout}
	var err error
	if b.replicas, err = numbers(*replicas); err == nil {
		b.waiters, err = numbers(*waiters)
	}
	if err == nil {
		err = b.run(context.Background(), *dsn, strings.Split(*only, ","))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "admission:", err)
		os.Exit(1)
	}
}

func numbers(list string) (all []int, err error) {
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a list of numbers", list)
		}
		all = append(all, n)
	}
	return all, nil
}
