package caddymodule_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/usherproxy/usher/caddymodule"
)

// ending ends l in the background; the result tells how long that took.
func ending(ctx context.Context, l *caddymodule.Lifetime, quiet time.Duration) <-chan time.Duration {
	done, began := make(chan time.Duration, 1), time.Now()
	go func() {
		l.End(ctx, quiet)
		done <- time.Since(began)
	}()
	return done
}

func TestLifetimeEndsWhenNobodyUsesIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		uses  func(*caddymodule.Lifetime)
		quiet time.Duration
		want  time.Duration
	}{
		"unused": {func(*caddymodule.Lifetime) {}, 0, 0},
		"quiet":  {func(*caddymodule.Lifetime) {}, 2 * time.Second, 2 * time.Second},
		"used": {func(l *caddymodule.Lifetime) {
			l.Enter()
			l.Enter()
			time.AfterFunc(3*time.Second, l.Leave)
			time.AfterFunc(5*time.Second, l.Leave)
		}, 0, 5 * time.Second},
		"used, then quiet": {func(l *caddymodule.Lifetime) {
			l.Enter()
			time.AfterFunc(5*time.Second, l.Leave)
		}, 2 * time.Second, 7 * time.Second},
		"used again in the quiet time": {func(l *caddymodule.Lifetime) {
			time.AfterFunc(time.Second, func() {
				l.Enter()
				l.Leave()
			})
		}, 2 * time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var l caddymodule.Lifetime
				c.uses(&l)
				if got := <-ending(t.Context(), &l, c.quiet); got != c.want {
					t.Errorf("it ended after %s, want %s", got, c.want)
				}
				if l.Enter() {
					t.Error("somebody entered after the end")
				}
			})
		})
	}
}

func TestLifetimeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l caddymodule.Lifetime
		l.Enter()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if got := <-ending(ctx, &l, time.Hour); got != 5*time.Second {
			t.Errorf("it ended after %s, want 5s", got)
		}
		if l.Enter() {
			t.Error("somebody entered after the end")
		}
		l.Leave()
	})
}
