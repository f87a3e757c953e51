package format

import "net/http"

// A Model is an entry of the listing of models.
type Model struct {
	// ID is the public name.
	ID string

	// Created is when the model came to be, in seconds since 1970.
	Created int64

	// OwnedBy names who offers the model.
	OwnedBy string
}

// WriteModels answers a [ListModels] operation. The order is that of models.
func (op *Operation) WriteModels(w http.ResponseWriter, models []Model) {
	writeJSON(w, http.StatusOK, op.shape().listing(models))
}

// WriteModel answers a [GetModel] operation.
func (op *Operation) WriteModel(w http.ResponseWriter, m Model) {
	writeJSON(w, http.StatusOK, op.shape().model(m))
}

// each returns the models in a format's words.
func each[T any](models []Model, words func(Model) T) []T {
	entries := make([]T, 0, len(models))
	for _, m := range models {
		entries = append(entries, words(m))
	}
	return entries
}
