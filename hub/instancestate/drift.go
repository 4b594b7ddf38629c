package instancestate

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capstan-hub/capstan/hub/instancestate/guard"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
)

// DefaultDriftGrace is how long a label may differ from status.instanceState, which
// Cluster API Provider AWS polls: it is late by its reconciliation, and an event may
// still be on its way.
const DefaultDriftGrace = 5 * time.Minute

// drift repairs labels of which the event was lost, for EventBridge delivers as well as
// it can and no better; and labels that somebody else has written.
type drift struct {
	r *AWSInstanceStateReconciler

	mu          sync.Mutex
	lockedState struct {
		// suspects: object → how its label differs, and since when.
		suspects map[owner.Key]suspect
	}
}

type suspect struct {
	difference
	since time.Time
}

// difference of a label from what it should be.
type difference struct {
	// wrote is what somebody else wrote over ours.
	wrote, ours string
	// polled is the state that CAPA sees, of an instance.
	polled, instance string
}

func newDrift(r *AWSInstanceStateReconciler) *drift {
	d := &drift{r: r}
	d.lockedState.suspects = map[owner.Key]suspect{}
	return d
}

// look at an object as a watch brought it.
func (d *drift) look(key owner.Key, u *unstructured.Unstructured) {
	now, differs := differenceOf(key, u), false
	d.mu.Lock()
	known, had := d.lockedState.suspects[key]
	switch {
	case now == difference{}:
		delete(d.lockedState.suspects, key)
	case !had || known.difference != now:
		d.lockedState.suspects[key], differs = suspect{now, d.r.Clock.Now()}, true
	}
	d.mu.Unlock()
	if differs && now.polled == "" && d.r.leads() {
		d.r.metrics.strangers.Inc()
		for source := range d.r.sources.statuses() {
			d.r.teller.stranger(source, key, now.wrote, now.ours)
		}
	}
}

func (d *drift) forget(key owner.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.lockedState.suspects, key)
}

// differenceOf an object's label; none where nothing can be told.
func differenceOf(key owner.Key, u *unstructured.Unstructured) difference {
	if u.GetDeletionTimestamp() != nil {
		return difference{}
	}
	known, err := historyOf(key, u.GetAnnotations())
	if err != nil {
		return difference{}
	}
	wrote := u.GetLabels()[labelOf(key)]
	i, machine := known.(instance)
	polled, id := capa.Text(u, "status", "instanceState"), instanceOf(u)
	if machine && i.ID != "" && i.ID != id {
		// The label is of the instance before. That this one runs is sure; that it has
		// ended is not, for the polled end may be of the one before, too.
		if id == "" || !alive(polled) || wrote == polled {
			return difference{}
		}
		return difference{polled: polled, instance: id}
	}
	record, has := known.current()
	switch {
	case has && record.Word != wrote:
		return difference{wrote: wrote, ours: record.Word}
	case !machine || polled == "" || id == "" || !drifted(i.State, polled):
		return difference{}
	case len(i.Notices) > 0 && alive(polled):
		return difference{} // It is announced, and has not come.
	case has && !polledAt(u).After(record.Time):
		return difference{} // It was polled before, as when CAPA is down since.
	}
	return difference{polled: polled, instance: id}
}

// drifted is whether a polled state says that an event was lost. That there was none of
// an instance's start says nothing: the queue may have come after it.
func drifted(state *guard.Record, polled string) bool {
	if state == nil {
		return !alive(polled)
	}
	return state.Word != polled && state.Word != message.WordTerminated
}

func alive(polled string) bool { return polled == "pending" || polled == "running" }

// run until the context ends; only the leader repairs.
func (d *drift) run(ctx context.Context) {
	const looks = 4 // in a grace
	ticker := d.r.Clock.NewTicker(d.r.DriftGrace / looks)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if !d.r.leads() {
			continue
		}
		for key, s := range d.due() {
			if s.polled == "" || !d.paused(ctx, key) {
				d.repair(key, s.difference)
			}
		}
	}
}

// due suspects; they are suspects anew, should the repair fail.
func (d *drift) due() map[owner.Key]suspect {
	now, due := d.r.Clock.Now(), map[owner.Key]suspect{}
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, s := range d.lockedState.suspects {
		if now.Sub(s.since) >= d.r.DriftGrace {
			due[key] = s
			s.since = now
			d.lockedState.suspects[key] = s
		}
	}
	return due
}

// paused is whether CAPA does not look at an object: what it polled is as old as that.
func (d *drift) paused(ctx context.Context, key owner.Key) bool {
	u, err := d.r.read(ctx, key)
	return err != nil || paused(ctx, d.r.reader(key.Cluster), u.GetLabels()[clusterv1.ClusterNameLabel], u)
}

func (d *drift) repair(key owner.Key, s difference) {
	w := work{repair: true, tracker: &tracker{owed: nobody{}, left: 1}}
	if s.polled != "" {
		now := d.r.Clock.Now().UTC()
		event, err := polledEvent(key, s, now)
		if err != nil {
			d.r.Logger.Error(err, "Repairing a label failed", "namespace", key.Namespace, "name", key.Name)
			return
		}
		m, err := message.Decode(event, now)
		if err != nil || len(m.Facts) != 1 {
			return // A state that EC2 has no event of.
		}
		d.r.metrics.repairs.Inc()
		w = work{arrival: arrival{event: newExcerpts(m.Event)}, fact: m.Facts[0], tracker: w.tracker}
	}
	d.r.lanes.put(key, w)
}

// polledEvent is the event that was lost, as far as it is known.
func polledEvent(key owner.Key, s difference, now time.Time) ([]byte, error) {
	detail, err := json.Marshal(map[string]string{"instance-id": s.instance, "state": s.polled})
	if err != nil {
		return nil, err
	}
	return json.Marshal(EventBridgeEvent{
		Version: "0", ID: fmt.Sprintf("polled/%s/%s/%d", key.Namespace, key.Name, now.Unix()), Source: "aws.ec2",
		DetailType: "EC2 Instance State-change Notification", Time: now.Format(time.RFC3339), Detail: detail,
	})
}
