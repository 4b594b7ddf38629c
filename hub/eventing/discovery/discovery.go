package discovery

import (
	"encoding/json"
	"net/http"

	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

// Paths that are served.
const (
	BackendPath = "/backend"
	SchemasPath = "/schemas/"
)

// methods that are answered.
const methods = http.MethodGet + ", " + http.MethodHead

// problem is the body of every answer but 200.
type problem struct {
	Error string `json:"error"`
	// Supported types, when another was asked for.
	Supported []string `json:"supported,omitempty"`
}

// Handler serves what the registry holds.
func Handler(registry *schema.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(BackendPath, get(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, registry.Types())
	}))
	mux.HandleFunc(BackendPath+"/{type}", get(func(w http.ResponseWriter, r *http.Request) {
		asked := r.PathValue("type")
		description, known := registry.Describe(asked)
		if !known {
			answer(w, http.StatusNotFound, problem{Error: "unknown backend type " + shown(asked), Supported: registry.Types()})
			return
		}
		answer(w, http.StatusOK, description)
	}))
	mux.HandleFunc(SchemasPath+"{kind}", get(func(w http.ResponseWriter, r *http.Request) {
		text, known := event.Schema(event.Kind(r.PathValue("kind")))
		if !known {
			answer(w, http.StatusNotFound, problem{Error: "unknown kind of event " + shown(r.PathValue("kind"))})
			return
		}
		answer(w, http.StatusOK, json.RawMessage(text))
	}))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusNotFound, problem{Error: "there is nothing here; try " + BackendPath})
	})
	return mux
}

// get lets pass what only asks.
func get(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", methods)
			answer(w, http.StatusMethodNotAllowed, problem{Error: "only " + methods + " are answered"})
			return
		}
		next(w, r)
	}
}

// maxShown is how much of what was asked for an answer repeats.
const maxShown = 64

func shown(asked string) string {
	if len(asked) > maxShown {
		return "of such a long name"
	}
	return asked
}

// answer in JSON.
func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	text, err := json.Marshal(body)
	if err != nil { // All bodies are of this package's types.
		status, text = http.StatusInternalServerError, []byte(`{"error":"internal error"}`)
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // Who has gone needs no answer.
}
