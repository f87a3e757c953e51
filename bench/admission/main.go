// Command admission measures and checks the admission policy as replicas use it,
// each a process, with a PostgreSQL server that it starts for itself, whose data
// is in memory, unless it is told of one.
//
//	go run ./bench/admission            # measures, beside single-row updates
//	go run ./bench/admission -check 20  # random loads, whose callers' events are checked
//	go run ./bench/admission -chaos 1   # the same, while replicas and the database are harmed
//
// What it measures are figures of one machine at one moment. Compare rows of one run.
package main

import (
	"context"
	"errors"
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
	measure := flag.Duration("time", 5*time.Second, "how long each row, or each load, takes")
	chaos := flag.Int("chaos", 0, "instead of measuring, do all harm to replicas and their database, so many `times`")
	check := flag.Int("check", 0, "instead of measuring, check this many random `loads`")
	seed := flag.Uint64("seed", 1, "the first load to check")
	callers := flag.Int("callers", 500, "how many `callers` a load to check may have, about")
	flag.Parse()
	b := &bench{store: *store, measure: *measure, out: os.Stdout}
	err := b.main(context.Background(), *dsn, func(ctx context.Context) (err error) {
		if *chaos > 0 {
			return b.chaos(ctx, *chaos)
		}
		if *check > 0 {
			return b.check(ctx, *seed, *check, *callers)
		}
		if b.replicas, err = numbers(*replicas); err != nil {
			return err
		}
		if b.waiters, err = numbers(*waiters); err != nil {
			return err
		}
		return b.run(ctx, strings.Split(*only, ","))
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "admission:", err)
		os.Exit(1)
	}
}

// main does something with a database.
func (b *bench) main(ctx context.Context, dsn string, do func(context.Context) error) error {
	end, err := b.open(ctx, dsn)
	if err == nil {
		err = do(ctx)
	}
	if b.database != nil {
		err = errors.Join(err, b.database.close(ctx))
	}
	return errors.Join(err, end())
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
