package conformance

import "time"

// SetPatience lets checks of broken policies fail soon, and those of others wait for
// a busy machine.
func SetPatience(d time.Duration) { Patience = d }
