package postgres_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/plugins/fifo/internal/reference"
	"github.com/usherproxy/usher/policy"
)

// noteLoans notes which scopes are claimed, what is lent, and who waits for what,
// after an entry.
func (c *checker) noteLoans(now time.Time) {
	claimed, lent := map[string]bool{}, map[string]int64{}
	for _, id := range c.model.Scopes() {
		claimed[id] = c.model.Claimed(now, id)
	}
	c.model.Loans(func(holder int64, id string, n int64) { lent[loanName(holder, id)] = n })
	c.claimed, c.lent = append(c.claimed, claimed), append(c.lent, lent)
	waits := map[*reference.Entry][]string{}
	for _, o := range c.model.Waiting {
		waits[o] = c.model.Waits(now, o)
	}
	c.waits = append(c.waits, waits)
}

func loanName(holder int64, id string) string { return fmt.Sprint(holder, " ", id) }

// A use is a request that the log does not know of. It began between the moments
// at which its replica had read the entries from[0] and from[1], and it ended when
// that had read until. Began and ended are places in the order of all beginnings
// and ends. A beginning is noted after it, and an end before it.
type use struct {
	name         ticketName
	replica      int64
	scopes       []string
	from         [2]int64
	until        int64
	began, ended int64
}

// checkUses checks that requests that the log does not know of have run on what
// was lent to their replicas, and passed nobody whom these knew to wait.
func (c *checker) checkUses(uses []use) {
	c.t.Helper()
	used := map[string]int64{}
	for _, m := range moments(uses) {
		if m.begins && !c.rightful(m.use) {
			c.t.Errorf("%v ran on credits after entries %v, and somebody waited for one of %v", m.name, m.from, m.scopes)
		}
		for _, id := range m.scopes {
			name := loanName(m.replica, id)
			if m.begins {
				used[name]++
			}
			if lent := c.mostLent(m, name); used[name] > lent {
				c.t.Errorf("%v, begins: %t: replica %d used %d of %s, and was lent %d", m.name, m.begins, m.replica, used[name], id, lent)
			}
			if !m.begins {
				used[name]--
			}
		}
	}
}

// A moment is the beginning of a use, or its end.
type moment struct {
	use
	begins bool
}

// moments returns all of uses in their order.
func moments(uses []use) []moment {
	var list []moment
	for _, u := range uses {
		list = append(list, moment{u, true}, moment{u, false})
	}
	at := func(m moment) int64 {
		if m.begins {
			return m.began
		}
		return m.ended
	}
	slices.SortFunc(list, func(a, b moment) int { return cmp.Compare(at(a), at(b)) })
	return list
}

// mostLent returns the most that was lent when m was.
func (c *checker) mostLent(m moment, name string) int64 {
	if !m.begins {
		return c.lent[m.until][name]
	}
	var most int64
	for _, lent := range c.lent[m.from[0] : m.from[1]+1] {
		most = max(most, lent[name])
	}
	return most
}

// rightful reports whether there was a moment at which u may have started: when
// its replica knew of nobody who waited for anything that it used.
func (c *checker) rightful(u use) bool {
	for _, claimed := range c.claimed[u.from[0] : u.from[1]+1] {
		if !slices.ContainsFunc(u.scopes, func(id string) bool { return claimed[id] }) {
			return true
		}
	}
	return false
}

// hand ends a lease, and lets an heir run on what it held, who may pass those of
// whom his replica did not know yet.
func (c *checker) hand(now time.Time, e row, h *postgres.Hand) {
	lease, heir := nameOf(h.ID, h.Attempt), ticketName(h.To)
	from, to := c.live[lease], c.live[heir]
	if from == nil || to == nil || c.owner[lease] != e.Replica || c.owner[heir] != e.Replica || !c.runs(from) || h.After >= e.Seq {
		c.t.Fatalf("entry %d: %+v", e.Seq, h)
	}
	c.model.Hand(now, from, &policy.Usage{}, to, h.On, func(o *reference.Entry, scope string) bool {
		return slices.Contains(c.waits[h.After][o], scope)
	})
	delete(c.live, lease)
	c.handed[heir] = h.After
	c.ran[heir] = h.On
}

// checkHands checks that what the log says about when heirs have started is what
// their users have seen.
func (c *checker) checkHands(uses []use) {
	c.t.Helper()
	for _, u := range uses {
		if after, ok := c.handed[u.name]; ok && (after < u.from[0] || after > u.from[1]) {
			c.t.Errorf("%v has started after entry %d, as the log says, and between %v", u.name, after, u.from)
		}
	}
}
