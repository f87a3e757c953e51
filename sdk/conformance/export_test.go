package conformance

import "time"

// SetPatience lets checks of broken policies fail soon.
func SetPatience(d time.Duration) { Patience = d }
