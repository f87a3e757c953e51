package keys

import (
	"encoding/json"
	"log/slog"
	"time"
)

// What an operator says of a key before any request has shown the version of its
// secret is known of a version without a name. The version that comes first takes
// it over. What was said up to takenAt has been taken, and is no other's.

// early reports whether what is known of the subject waits for a version.
func (id subjectID) early() bool {
	return id.Version == "" && (id.Kind == kindKey || id.Kind == kindModel)
}

func anyVersion(id subjectID) subjectID {
	id.Version = ""
	return id
}

// adoptLocked lets versions of a key take over what was said early.
func (s *state) adoptLocked(now time.Time, early *subject, versions []*subject) {
	took := false
	for _, f := range early.factsLocked() {
		w, _ := early.writeLocked(f)
		if f == factTaken || !w.said.After(early.takenAt) {
			continue
		}
		took = true
		raw, err := json.Marshal(w.value)
		for _, sub := range versions {
			if err == nil {
				_, err = sub.mergeLocked(f, raw, w.cleared)
			}
			s.tellLocked(sub, f)
		}
		if err != nil { // cannot be: it was written by the same program
			slog.Error("take over what was said of a key", "policy", "keys", "fact", f, "error", err)
		}
	}
	if !took {
		return
	}
	early.takenAt = now
	s.tellLocked(early, factTaken)
	for _, sub := range versions {
		sub.publishLocked()
	}
}

// settleLocked lets the versions that are in use take over what another replica
// was told early.
func (s *state) settleLocked(now time.Time, early *subject) {
	var versions []*subject
	for id, sub := range s.subjects {
		if sub != early && anyVersion(id) == early.id {
			versions = append(versions, sub)
		}
	}
	if len(versions) > 0 {
		s.adoptLocked(now, early, versions)
	}
}
