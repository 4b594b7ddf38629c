package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/internal/revision"
	"github.com/capstan-hub/capstan/internal/soak"
)

// soaks are the running sums of the environments from which a soak is required. The status has what
// a later process continues with.
//
// Locking: one worker at a time uses the sums of a Pipeline.
type soaks struct {
	// mu guards lockedOf, for field access only.
	mu       sync.Mutex
	lockedOf map[types.NamespacedName]running
}

// running are the sums of one Pipeline, by environment.
type running struct {
	uid  types.UID
	sums map[string]soak.Soak
}

// ofPipeline returns the sums of a Pipeline, by environment. Those of a former one of its name do not
// count.
func (s *soaks) ofPipeline(key types.NamespacedName, uid types.UID) map[string]soak.Soak {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.lockedOf[key]; of.uid == uid {
		return of.sums
	}
	return nil
}

// set replaces the sums of a Pipeline. An environment that counts no more is not in them: when it counts
// again, it continues with what is stored.
func (s *soaks) set(key types.NamespacedName, uid types.UID, sums map[string]soak.Soak) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(sums) == 0 {
		delete(s.lockedOf, key)
		return
	}
	if s.lockedOf == nil {
		s.lockedOf = map[types.NamespacedName]running{}
	}
	s.lockedOf[key] = running{uid: uid, sums: sums}
}

func (s *soaks) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lockedOf, key)
}

// counts returns whether this process counts a soak of a Pipeline.
func (s *soaks) counts(key types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, is := s.lockedOf[key]
	return is
}

// keys returns the Pipelines whose soaks this process counts.
func (s *soaks) keys() []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.lockedOf))
}

// storeTimeout bounds the writes of soaks when the process ends. It is shorter than the time that a
// pod has to end.
const storeTimeout = 10 * time.Second

// StoreSoaks waits until the process ends, and stores the sums of all soaks, so that the next hub
// continues with them.
func (r *Reconciler) StoreSoaks(ctx context.Context) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(workers)
	for _, key := range r.soaks.keys() {
		group.Go(func() error {
			if err := r.storeSoak(ctx, key); err != nil && !apierrors.IsConflict(err) && !errors.Is(err, errMovedOn) && !apierrors.IsNotFound(err) {
				logger(ctx).Info("the soaks of a Pipeline could not be stored; what was counted since the last write is lost", "pipeline", key, "cause", err.Error())
			}
			return nil
		})
	}
	return group.Wait()
}

// storeSoak stores the soaks of one Pipeline, as they are if nothing has changed since its last reconcile.
func (r *Reconciler) storeSoak(ctx context.Context, key types.NamespacedName) error {
	p := &pipelinesv1.Pipeline{}
	if err := r.Client.Get(ctx, key, p); err != nil {
		return err
	}
	if !p.ServedInFull() {
		return nil
	}
	p = p.Shown()
	status, now := *p.Status.DeepCopy(), r.Clock.Now()
	sums := r.soaks.ofPipeline(key, p.UID)
	for i, wanted := range requiredSoaks(p) {
		name := p.Spec.Environments[i].Name
		s, counts := sums[name]
		env := status.Environments[name]
		if wanted.Soak == nil || !counts || env == nil || env.Agreed == nil || env.Agreed.Sequence != s.Sum().Subject.Sequence {
			continue
		}
		env.Agreed.Soak = soakStatus(s.At(now, wanted.Tolerate), now)
	}
	return r.writeStatus(ctx, p, status, false)
}

// requiredSoak is the soak that an environment must have before its revision is promoted into the next one:
// nil for none, or if it is invalid.
type requiredSoak struct {
	*gate.Soak
	invalid bool
}

// requiredSoaks returns the soak of each environment.
func requiredSoaks(p *pipelinesv1.Pipeline) []requiredSoak {
	all := make([]requiredSoak, len(p.Spec.Environments))
	for i := range p.Spec.Environments[:max(0, len(all)-1)] {
		rules := gate.For(p, i+1)
		all[i] = requiredSoak{rules.Soak(), rules.SoakInvalid()}
	}
	return all
}

// countSoaks counts the soaks of a Pipeline until now, and puts those into the new status that must
// be stored: all of them if another part of the status changed or one of them has to be, else what is
// stored. It returns the time until the next one ends, starts again or has to be stored; 0 if none will.
func (r *Reconciler) countSoaks(p *pipelinesv1.Pipeline, seen observations, status *pipelinesv1.PipelineStatus) (next time.Duration) {
	key, now := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, r.Clock.Now()
	before, sums, counted := r.soaks.ofPipeline(key, p.UID), map[string]soak.Soak{}, map[string]*pipelinesv1.SoakStatus{}
	due := false
	for i, wanted := range requiredSoaks(p) {
		name := p.Spec.Environments[i].Name
		env := status.Environments[name]
		if env == nil || env.Agreed == nil {
			continue
		}
		switch {
		case wanted.invalid: // What was counted is kept until the spec is corrected.
			if s, runs := before[name]; runs {
				sums[name] = s.Note(now, s.Sum().Subject, soak.Unobserved, gate.MaxSoak)
			}
			continue
		case wanted.Soak == nil:
			env.Agreed.Soak = nil
			continue
		}
		last := env.Agreed.Soak // It is absent from a new agreement.
		s, runs := before[name]
		if !runs {
			s = resumed(env.Agreed, last)
		}
		verdict, digest, known := seen.verdict(p, i, env.Agreed.Revision)
		if !known {
			digest = s.Sum().Subject.Digest
		}
		subject := soak.Subject{Revision: revision.Content(env.Agreed.Revision), Digest: digest, Sequence: env.Agreed.Sequence}
		s = s.Note(now, subject, verdict, wanted.Tolerate)
		sums[name] = s
		if r.stands(p, seen[i]) {
			continue // The stored sum stands, too.
		}
		counted[name] = soakStatus(s, now)
		due = due || mustStore(last, counted[name], wanted.For)
		if wait := untilChange(s, counted[name], last, wanted.Soak); wait > 0 && (next == 0 || wait < next) {
			next = wait
		}
	}
	r.soaks.set(key, p.UID, sums)
	if len(sums) == 0 || !due && equality.Semantic.DeepEqual(&p.Status, status) {
		return next
	}
	for name, c := range counted {
		status.Environments[name].Agreed.Soak = c
	}
	return next
}

// drift is how far the wall clock may be from what the stored times show before they are stored anew.
const drift = 2 * time.Second

// mustStore returns whether a sum has to be stored after the last one: it is done, counts no more or
// again, is smaller, is of another content, was interrupted, or would lose too much if the hub ended.
func mustStore(last, now *pipelinesv1.SoakStatus, wanted time.Duration) bool {
	if last == nil || last.State != now.State || last.Digest != now.Digest || (last.CountedTime == nil) != (now.CountedTime == nil) || now.Seconds < last.Seconds {
		return true
	}
	required := int64(wanted / time.Second)
	if last.Seconds >= required || now.CountedTime == nil {
		return false
	}
	began := func(s *pipelinesv1.SoakStatus) time.Time {
		return s.CountedTime.Add(-time.Duration(s.Seconds) * time.Second)
	}
	return now.Seconds >= required || now.Seconds-last.Seconds >= int64(soak.StoreEvery(wanted)/time.Second) || began(now).Sub(began(last)).Abs() > drift
}

// untilChange returns when a soak is done, has to be stored, or starts again; 0 for never.
func untilChange(s soak.Soak, now, last *pipelinesv1.SoakStatus, wanted *gate.Soak) time.Duration {
	left, counts := s.Left(wanted.For)
	switch {
	case !counts:
		return s.Restart(wanted.Tolerate)
	case left == 0:
		return 0
	}
	store := soak.StoreEvery(wanted.For)
	if last != nil {
		store -= time.Duration(now.Seconds-last.Seconds) * time.Second
	}
	return min(left, max(store, time.Second))
}

// resumed returns the soak that a status has.
func resumed(agreed *pipelinesv1.AgreedRevision, last *pipelinesv1.SoakStatus) soak.Soak {
	if last == nil {
		return soak.Soak{}
	}
	return soak.Resume(soak.Sum{
		Subject: soak.Subject{Revision: revision.Content(agreed.Revision), Digest: last.Digest, Sequence: agreed.Sequence},
		For:     time.Duration(last.Seconds) * time.Second,
		Verdict: soak.Verdict(last.State),
	})
}

func soakStatus(s soak.Soak, now time.Time) *pipelinesv1.SoakStatus {
	sum := s.Sum()
	status := &pipelinesv1.SoakStatus{Seconds: int64(sum.For / time.Second), State: pipelinesv1.SoakState(sum.Verdict), Digest: sum.Subject.Digest}
	if _, counts := s.Left(0); counts {
		// The part of a second that is not stored was counted before.
		status.CountedTime = &metav1.Time{Time: now.Add(-(sum.For % time.Second)).Truncate(time.Second)}
	}
	return status
}

// verdict returns the state of environment i for the soak of the revision on which it agreed last,
// and the digest of what its targets run, if as many as must are known to run the revision.
//
// A target that runs another revision is on its way to a new agreement: that neither counts nor
// restarts the soak. One whose application is gone is not ready, and has no digest.
func (s observations) verdict(p *pipelinesv1.Pipeline, i int, agreed string) (v soak.Verdict, digest string, known bool) {
	fleet := s.fleet(p, i)
	v = fleet.Observe(agreed, soak.Unobserved)
	var digests []string
	for _, o := range s[i] {
		if o.target.Fresh && !o.standing.LeftOut() && revision.Same(o.target.Revision, agreed) {
			digests = append(digests, o.obs.Digest)
		}
	}
	if len(digests) < fleet.Required() {
		return v, "", false
	}
	return v, digestOf(digests), true
}

// digestOf returns one digest for the set of those of the targets.
func digestOf(all []string) string {
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) == 1 {
		return all[0]
	}
	sum := sha256.Sum256([]byte(strings.Join(all, ",")))
	return hex.EncodeToString(sum[:8])
}
