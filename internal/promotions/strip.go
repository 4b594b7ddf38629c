package promotions

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// maxSeries bounds how many series and Pipelines a Stripper knows. Beyond it, it forgets them all
// and begins again: values are then shared with later Promotions only.
const maxSeries = 50000

// lastApplied is kubectl's copy of an object that a user applied.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// attemptsEnd is how long after NextAttemptTime every attempt has ended, also if the clocks of
// two hubs differ.
const attemptsEnd = time.Hour

// Stripper reduces Promotions before a cache stores them.
type Stripper struct {
	clock clock.PassiveClock

	// mu guards lockedState.
	mu          sync.Mutex
	lockedState lockedState
}

type lockedState struct {
	// series has the last Promotion of each series, and under no environment that of each
	// Pipeline.
	series map[series]*packed
	// rest is where the next Promotion is packed.
	rest  *capstanv1.Promotion
	known texts
}

// series are the promotions of one Pipeline into one environment.
type series struct {
	uid         types.UID
	environment string
}

// NewStripper makes a Stripper.
func NewStripper(c clock.PassiveClock) *Stripper {
	return &Stripper{clock: c, lockedState: lockedState{series: map[series]*packed{}, rest: &capstanv1.Promotion{}, known: texts{}}}
}

// someManagedFields are what a cache has in place of the managed fields of a settled Promotion:
// its reader only needs to know whether there are any.
var someManagedFields = []metav1.ManagedFieldsEntry{{}}

// HasManagedFields returns whether the stored object of a settled Promotion, which a reader got
// from a cache, has managed fields.
func HasManagedFields(p *capstanv1.Promotion) bool { return Settled(p) && len(p.ManagedFields) > 0 }

// ClearManagedFields returns a patch that removes the managed fields of an object (Kubernetes,
// Server-Side Apply, "Clearing managedFields"). The API server answers with a conflict if the
// object is another one or has changed.
func ClearManagedFields(uid types.UID, resourceVersion string) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q,"managedFields":[{}]}}`, uid, resourceVersion))
}

// Strip returns what a cache stores of a Promotion; it may change the given one. A Promotion
// loses its managed fields. A settled one also loses what no reader of the cache uses, and is
// packed: handlers of events get it from Whole, and readers of the cache get whole copies, which
// tell whether the stored one has managed fields. A read of settled Promotions with
// client.UnsafeDisableDeepCopy fails, because it is no copy.
func (s *Stripper) Strip(p *capstanv1.Promotion) client.Object {
	if !Settled(p) {
		p.ManagedFields = nil
		return p
	}
	s.strip(p)
	return s.packed(p)
}

// strip removes what no reader uses. The conditions follow from phase, reason and message.
// The gates hold nothing any more: only how long they did is kept, for the delivery figures. The verification has its verdict. Of the attempt, readers use whether there was one, and its number. Of the pull request
// they use the URL, which is also in the status.
func (s *Stripper) strip(p *capstanv1.Promotion) {
	delete(p.Annotations, lastApplied)
	if len(p.Annotations) == 0 {
		p.Annotations = nil
	}
	p.Status.Conditions = nil
	p.Status.Secret = nil
	p.Status.Gates, p.Status.ExpectedTime, p.Status.GatesShown = nil, nil, nil
	p.Status.Trial, p.Status.Checks = nil, nil
	if p.Status.Withdrawn || p.Spec.Strategy.PullRequest == nil {
		p.Status.PullRequest = nil
	}
	// One that was superseded during its attempt delays the next promotion until that ends.
	if a := p.Status.Attempt; a != nil && (p.Status.CarriedOutTime != nil || a.Error != "" || p.Spec.Strategy.Notification == nil ||
		s.clock.Since(a.NextAttemptTime.Time) > attemptsEnd) {
		p.Status.Attempt = &capstanv1.Attempt{Number: a.Number}
	}
}

// packed packs p so that it shares memory with the last Promotion of its series.
func (s *Stripper) packed(p *capstanv1.Promotion) *packed {
	key, ofPipeline := series{p.Spec.Pipeline.UID, p.Spec.Environment}, series{uid: p.Spec.Pipeline.UID}
	s.mu.Lock()
	defer s.mu.Unlock()
	state := &s.lockedState
	last := cmp.Or(state.series[key], state.series[ofPipeline])
	if last == nil {
		last = &packed{}
	}
	if len(state.series) >= maxSeries {
		clear(state.series)
	}
	k := pack(p, last, state.rest, state.known)
	if k.Promotion == state.rest {
		state.rest = &capstanv1.Promotion{}
	}
	state.series[key], state.series[ofPipeline] = k, k
	return k
}
