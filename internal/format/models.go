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

// openAIModel is a Model in OpenAI's words.
type openAIModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func toOpenAI(m Model) openAIModel { return openAIModel{m.ID, "model", m.Created, m.OwnedBy} }

// WriteModels answers a [ListModels] operation. The order is that of models.
func WriteModels(w http.ResponseWriter, models []Model) {
	list := struct {
		Object string        `json:"object"`
		Data   []openAIModel `json:"data"`
	}{"list", make([]openAIModel, 0, len(models))}
	for _, m := range models {
		list.Data = append(list.Data, toOpenAI(m))
	}
	writeJSON(w, http.StatusOK, list)
}

// WriteModel answers a [GetModel] operation.
func WriteModel(w http.ResponseWriter, m Model) {
	writeJSON(w, http.StatusOK, toOpenAI(m))
}
