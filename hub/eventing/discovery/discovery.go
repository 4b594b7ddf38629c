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

// methods that are allowed.
const methods = http.MethodGet + ", " + http.MethodHead

// problem is the body of every answer except 200.
type problem struct {
	Error string `json:"error"`
	// Supported types, in the answer for an unknown type.
	Supported []string `json:"supported,omitempty"`
}

// Handler serves the types of the registry and the schemas of events.
func Handler(registry *schema.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(BackendPath, get(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, registry.Types())
	}))
	mux.HandleFunc(BackendPath+"/{type}", get(func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("type")
		description, known := registry.Describe(name)
		if !known {
			answer(w, http.StatusNotFound, problem{Error: "unknown backend type " + shown(name), Supported: registry.Types()})
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
		answer(w, http.StatusNotFound, problem{Error: "path not found; try " + BackendPath})
	})
	return mux
}

// get rejects all methods except GET and HEAD.
func get(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", methods)
			answer(w, http.StatusMethodNotAllowed, problem{Error: "method not allowed; use " + methods})
			return
		}
		next(w, r)
	}
}

// maxShown is the length, in bytes, of the longest name that an answer repeats.
const maxShown = 64

func shown(name string) string {
	if len(name) > maxShown {
		return "(the name is too long)"
	}
	return name
}

// answer in JSON.
func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	text, err := json.Marshal(body)
	if err != nil { // All bodies have types of this package.
		status, text = http.StatusInternalServerError, []byte(`{"error":"internal error"}`)
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // The client may have closed the connection.
}
