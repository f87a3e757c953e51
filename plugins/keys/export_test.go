package keys

// Remembered returns how many keys a plugin remembers something of, and how
// many probes it has not heard of.
func Remembered(p *Plugin) (records, probing int) {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	return len(p.state.records), len(p.state.probing)
}
