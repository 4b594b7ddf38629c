package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
)

// The keys of a Promote event that a receiver reads.
const (
	promoteReason  = "Promote"
	keyEnvironment = "pipelines.weave.works/environment"
	keyRevision    = "pipelines.weave.works/revision"
	keyPromotionID = "pipelines.weave.works/promotion-id"
	keyClusters    = "pipelines.weave.works/clusters"

	receiverTimeout = 5 * time.Second
	maxEventBytes   = 1 << 20
)

// notification of one promotion.
type notification struct {
	ID, Pipeline, Environment, Revision string
	// Clusters of a wave, as namespace/name.
	Clusters []string
	// Deliveries of this id. There may be more than one (at least once); the team acts once.
	Deliveries int
}

// team is the CI of shop: an HTTP receiver of Flux events that carries out Promote events,
// once for each promotion id.
//
// Locking: mu guards received; nothing is called under it.
type team struct {
	act func(ctx context.Context, n notification) error

	// mu guards received.
	mu       sync.Mutex
	received map[string]*notification
}

func newTeam(act func(context.Context, notification) error) *team {
	return &team{act: act, received: map[string]*notification{}}
}

// ServeHTTP receives one event.
func (t *team) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var event eventv1.Event
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxEventBytes)).Decode(&event); err != nil {
		http.Error(w, "not a Flux event: "+err.Error(), http.StatusBadRequest)
		return
	}
	if event.Reason != promoteReason {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	n := notification{
		ID:          event.Metadata[keyPromotionID],
		Pipeline:    event.InvolvedObject.Name,
		Environment: event.Metadata[keyEnvironment],
		Revision:    event.Metadata[keyRevision],
	}
	if clusters := event.Metadata[keyClusters]; clusters != "" {
		n.Clusters = strings.Split(clusters, ",")
	}
	if n.ID == "" || n.Environment == "" || n.Revision == "" {
		http.Error(w, fmt.Sprintf("a Promote event without %s, %s or %s", keyPromotionID, keyEnvironment, keyRevision), http.StatusUnprocessableEntity)
		return
	}
	if first := t.record(n); first {
		switch err := t.act(r.Context(), n); {
		case errors.Is(err, errNotOurs):
			// Another system carries it out. An answer that is an error would make the hub send
			// the notification again.
		case err != nil:
			t.forget(n.ID)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	w.WriteHeader(http.StatusAccepted)
}

// record counts a delivery; true for the first of its id.
func (t *team) record(n notification) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, ok := t.received[n.ID]
	if !ok {
		known = &n
		t.received[n.ID] = known
	}
	known.Deliveries++
	return !ok
}

// forget an id after a failure: the hub sends the notification again.
func (t *team) forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.received, id)
}

// deliveries of a promotion id.
func (t *team) deliveries(id string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n, ok := t.received[id]; ok {
		return n.Deliveries
	}
	return 0
}

// all notifications, in no order.
func (t *team) all() []notification {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]notification, 0, len(t.received))
	for _, n := range t.received {
		all = append(all, *n)
	}
	return all
}

// errNotOurs: the environment is none of the fleet's.
var errNotOurs = errors.New("not an environment of the fleet")

// act does what the CI of shop does for a Promote event: it sets the chart version in the
// environment. Flux does the rest. An environment that a user added is not the CI's.
func (w workloads) act(ctx context.Context, n notification) error {
	target, ok := w[n.Environment]
	if !ok {
		return fmt.Errorf("%w: %q", errNotOurs, n.Environment)
	}
	return target.release(n.Pipeline).Declare(ctx, n.Revision)
}
