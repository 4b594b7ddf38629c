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

// DefaultDriftGrace is how long a label may differ from status.instanceState. Cluster API
// Provider AWS polls that field, so it lags behind; and an event may not be delivered yet.
const DefaultDriftGrace = 5 * time.Minute

// drift repairs labels whose event was lost (EventBridge delivers on a best-effort basis)
// and labels that another client has overwritten.
type drift struct {
	r *Labeler

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
	// wrote is the label that another client wrote over ours.
	wrote, ours string
	// polled is the state that Cluster API Provider AWS (CAPA) polled, and the instance that
	// has it.
	polled, instance string
}

func newDrift(r *Labeler) *drift {
	d := &drift{r: r}
	d.lockedState.suspects = map[owner.Key]suspect{}
	return d
}

// check compares the label of an object, as a watch delivered it, with the expected one.
func (d *drift) check(key owner.Key, u *unstructured.Unstructured) {
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
		d.r.metrics.conflicting.Inc()
		for _, source := range d.r.sources.names() {
			d.r.events.conflictingWriter(source, key, now.wrote, now.ours)
		}
	}
}

func (d *drift) forget(key owner.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.lockedState.suspects, key)
}

// differenceOf returns how an object's label differs; empty when it does not, or when that
// is not known.
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
		// The label is that of the previous instance. If the polled state is alive, it is that
		// of the new instance; a polled end may still be that of the previous one.
		if id == "" || !alive(polled) || wrote == polled {
			return difference{}
		}
		return difference{polled: polled, instance: id}
	}
	record, has := known.current()
	switch {
	case known.Known() && record.Label != wrote:
		return difference{wrote: wrote, ours: record.Label}
	case !machine || polled == "" || id == "" || !drifted(i.State, polled):
		return difference{}
	case record.Kind.Notice() && alive(polled):
		return difference{} // The notice announces an end that has not happened yet.
	case has && !polledAt(u).After(record.Time):
		return difference{} // It was polled before the record, for example because CAPA is down.
	}
	return difference{polled: polled, instance: id}
}

// drifted reports whether a polled state shows that an event was lost. A missing event of
// an instance's start shows nothing: the queue may be newer than the instance.
func drifted(state *guard.Record, polled string) bool {
	if state == nil {
		return !alive(polled)
	}
	return state.Label != polled && state.Label != message.LabelTerminated
}

func alive(polled string) bool { return polled == "pending" || polled == "running" }

// run repairs labels until the context ends. Only the leader repairs.
func (d *drift) run(ctx context.Context) {
	const checks = 4 // per DriftGrace
	ticker := d.r.Clock.NewTicker(d.r.DriftGrace / checks)
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

// due returns the suspects whose grace is over. They stay suspects in case the repair
// fails.
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

// paused reports whether CAPA does not reconcile an object: then its polled state is old.
func (d *drift) paused(ctx context.Context, key owner.Key) bool {
	u, err := d.r.read(ctx, key)
	return err != nil || paused(ctx, d.r.reader(key.Cluster), u.GetLabels()[clusterv1.ClusterNameLabel], u)
}

func (d *drift) repair(key owner.Key, s difference) {
	w := work{repair: true, tracker: &tracker{received: noDelivery{}, left: 1}}
	if s.polled != "" {
		now := d.r.Clock.Now().UTC()
		event, err := polledEvent(key, s, now)
		if err != nil {
			d.r.Logger.Error(err, "Repairing a label failed; it is retried after the drift grace", "namespace", key.Namespace, "name", key.Name)
			return
		}
		m, err := message.Decode(event, now)
		if err != nil || len(m.Facts) != 1 {
			return // EC2 has no event for this state.
		}
		d.r.metrics.repairs.Inc()
		w = work{arrival: arrival{event: newExcerpts(m.Event)}, fact: m.Facts[0], tracker: w.tracker}
	}
	d.r.lanes.put(key, w)
}

// polledEvent returns the lost event, as far as it is known.
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
