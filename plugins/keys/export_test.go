package keys

import (
	"github.com/usherproxy/usher/plugins/keys/internal/board"
	"github.com/usherproxy/usher/policy"
)

// Observe adds an observation to what is known.
func (k *Known) Observe(w policy.Window) { k.Windows, _ = withWindow(k.Windows, w) }

// Summarized returns the facts as Select sees them.
func (f Facts) Summarized() Facts {
	for _, k := range []**Known{&f.Provider, &f.Account, &f.Key, &f.Model} {
		if *k != nil {
			known := **k
			known.summarize()
			*k = &known
		}
	}
	return f
}

// Remembered returns how many subjects a plugin remembers something of, and how
// many with probes it has not heard of.
func Remembered(p *Plugin) (subjects, probing int) {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	return len(p.memory.subjects), len(p.memory.probing)
}

// Tell lets a plugin tell facts as if to a store, and returns how to ask which
// it told.
func Tell(p *Plugin) func() []board.Row {
	var rows []board.Row
	p.memory.tell = func(row board.Row) { rows = append(rows, row) }
	return func() []board.Row { return rows }
}

// Hear lets a plugin hear what another told.
func Hear(p *Plugin, rows []board.Row) { p.memory.hear(p.Clock(), rows) }
