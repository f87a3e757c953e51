package reference

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
)

// Check returns how the model itself has broken an invariant of package fifo
// until now. The rules are looked at from the other side: not who may start, but
// whether it was right that somebody did.
func (m *Model) Check(now time.Time) error {
	errs := m.broken
	for _, e := range m.Waiting {
		if candidate, _ := m.judge(now, e); candidate >= 0 {
			errs = append(errs, fmt.Errorf("%s waits and could start on %d", e.Request.ID, candidate))
		}
	}
	return errors.Join(errs...)
}

// checkGrant checks that e was right to start now.
func (m *Model) checkGrant(now time.Time, e *Entry) {
	for k := range e.lease {
		if used := m.used(now, k); used > m.limits[k].n {
			m.broken = append(m.broken, fmt.Errorf("%s started, and %d of %d of %v are used", e.Request.ID, used, m.limits[k].n, k))
		}
		for _, earlier := range m.Waiting {
			if earlier.before(e) && (m.known == nil || m.known(earlier, k.id)) {
				m.checkPass(now, earlier, e, k)
			}
		}
	}
}

// checkPass checks that later was right to take k while earlier waits.
func (m *Model) checkPass(now time.Time, earlier, later *Entry, k key) {
	waits := m.kinds[earlier.kind()]
	if earlier.Rules.Order == queue.OrderStrict {
		waits = earlier.uses()
	}
	if slices.Contains(waits, k) {
		m.broken = append(m.broken, fmt.Errorf("%s passed %s on %v", later.Request.ID, earlier.Request.ID, k))
	}
	if m.keeper(k) == earlier && m.used(now, k)+m.amount(earlier, k) > m.limits[k].n {
		m.broken = append(m.broken, fmt.Errorf("%s took what was kept for %s of %v", later.Request.ID, earlier.Request.ID, k))
	}
}
