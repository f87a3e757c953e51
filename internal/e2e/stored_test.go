package e2e_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// A keeper is a provider that keeps the responses of each key apart.
type keeper struct {
	mu      sync.Mutex
	given   int
	kept    map[string]string // who has a response: the key, by its ID
	strange int               // requests of another key than the one that has it
}

// ServeHTTP implements [http.Handler].
func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := r.Header.Get("Authorization")
	id, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/responses/"), "/")
	status := "completed"
	if r.URL.Path == "/v1/responses" {
		var asked struct {
			Previous string `json:"previous_response_id"`
		}
		_ = json.NewDecoder(r.Body).Decode(&asked) // what is not understood names none
		if asked.Previous != "" && !k.hasLocked(key, asked.Previous) {
			answerJSON(w, http.StatusBadRequest, `{"error":{"message":"no such response","type":"invalid_request_error","param":"previous_response_id","code":"previous_response_not_found"}}`)
			return
		}
		k.given++
		id = fmt.Sprintf("resp_%d", k.given)
		k.kept[id] = key
	} else if !k.hasLocked(key, id) {
		answerJSON(w, http.StatusNotFound, `{"error":{"message":"no such response","type":"invalid_request_error","param":null,"code":null}}`)
		return
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/cancel"):
		status = "cancelled"
	case r.Method == http.MethodDelete:
		delete(k.kept, id)
		answerJSON(w, http.StatusOK, fmt.Sprintf(`{"id":%q,"object":"response","deleted":true}`, id))
		return
	}
	answerJSON(w, http.StatusOK, fmt.Sprintf(`{"id":%q,"object":"response","status":%q,"output":[{"type":"message","content":[{"type":"output_text","text":%q}]}]}`, id, status, hello))
}

func (k *keeper) hasLocked(key, id string) bool {
	owner, ok := k.kept[id]
	if ok && owner != key {
		k.strange++
	}
	return owner == key
}

func answerJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // whoever does not read it has left
}

// Responses that a provider keeps are asked of the key that has them, by an SDK
// that knows of no keys.
func TestStoredResponsesGoToTheirOwner(t *testing.T) {
	t.Parallel()
	k := &keeper{kept: make(map[string]string)}
	provider := httptest.NewServer(k)
	t.Cleanup(provider.Close)
	u := startUsher(t, setup{
		usher: "provider keeper " + provider.URL + " {\nkey k1 {env.E2E_KEY_1}\nkey k2 {env.E2E_KEY_2}\n}\nmodel gpt-4o keeper\nselect keys {\norder least_recently_used\n}\n",
		env:   keyEnv,
	})
	c := openai.NewClient(option.WithBaseURL(u.url+"/v1/"), option.WithAPIKey(callerKey), option.WithMaxRetries(0))
	owners := make(map[string]bool)
	for i := range 6 {
		first, err := c.Responses.New(t.Context(), responseParams(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		params := responseParams("next")
		params.PreviousResponseID = openai.String(first.ID)
		next, err := c.Responses.New(t.Context(), params)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Responses.Get(t.Context(), next.ID, responses.ResponseGetParams{})
		if err := cmp.Or(err, equal("ID", got.ID, next.ID), equal("text", got.OutputText(), hello)); err != nil {
			t.Error(err)
		}
		cancelled, err := c.Responses.Cancel(t.Context(), first.ID)
		if err := cmp.Or(err, equal("status", cancelled.Status, "cancelled")); err != nil {
			t.Error(err)
		}
		k.mu.Lock()
		owners[k.kept[first.ID]] = true
		k.mu.Unlock()
		if err := c.Responses.Delete(t.Context(), first.ID); err != nil {
			t.Error(err)
		}
		if err := c.Responses.Delete(t.Context(), next.ID); err != nil {
			t.Error(err)
		}
	}
	if len(owners) != 2 || k.strange != 0 {
		t.Errorf("%d keys gave responses, and %d requests went to another key", len(owners), k.strange)
	}
	var fault *openai.Error
	if _, err := c.Responses.Get(t.Context(), "resp_1", responses.ResponseGetParams{}); !errors.As(err, &fault) || fault.StatusCode != http.StatusNotFound {
		t.Errorf("a response that is deleted: %v", err)
	}
}
