package promotions

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/randfill"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// stored is what a reader of a cache gets that has stored a Promotion.
func stored(g Gomega, s *Stripper, p *capstanv1.Promotion) *capstanv1.Promotion {
	got, ok := Whole(s.Strip(p))
	g.Expect(ok).To(BeTrue())
	return got
}

// A settled Promotion keeps what the tables, the dashboard, events and metrics read.
func TestStrip(t *testing.T) {
	g := NewWithT(t)
	s := NewStripper(testclock.NewFakePassiveClock(time.Unix(1<<32, 0)))
	want := settled(1)
	want.ManagedFields, want.Status.Conditions, want.Status.PullRequest = someManagedFields, nil, nil
	delete(want.Annotations, lastApplied)
	want.Status.Attempt = &capstanv1.Attempt{Number: 2}
	first := stored(g, s, settled(1))
	g.Expect(equality.Semantic.DeepEqual(first, want)).To(BeTrue(), "%+v", first)
	g.Expect(Settled(first)).To(BeTrue(), "stripping does not change what is left to do")
	g.Expect(stored(g, s, first.DeepCopy())).To(Equal(first), "twice is like once")

	other := settled(5)
	other.Labels["team"] = "shop"
	g.Expect(stored(g, s, other).Labels).To(HaveKey("team"), "what differs is kept")
	g.Expect(first.Labels).NotTo(HaveKey("team"))

	failed := settled(6)
	failed.Status.Phase = capstanv1.PhaseFailed
	whole := failed.DeepCopy()
	whole.ManagedFields = nil
	g.Expect(s.Strip(failed)).To(Equal(whole), "one that may start again is whole")
}

// filler fills Promotions with random values that JSON can have.
func filler() *randfill.Filler {
	return randfill.NewWithSeed(7).NilChance(0.5).NumElements(1, 2).Funcs(
		func(at *metav1.Time, c randfill.Continue) {
			*at = metav1.NewTime(time.Unix(c.Int63n(1<<33)-1<<32, 0))
			if c.Intn(8) == 0 {
				*at = metav1.NewTime(at.Add(time.Nanosecond))
			}
		},
		func(at *metav1.MicroTime, c randfill.Continue) {
			*at = metav1.NewMicroTime(time.Unix(c.Int63n(1<<33), 0))
		},
		func(uid *types.UID, c randfill.Continue) {
			*uid = types.UID(c.String(8))
			if c.Bool() {
				*uid = uuid.NewUUID()
			}
		},
	)
}

// Whatever a settled Promotion has, a reader of the cache gets it back, and nothing that a
// reader changes is in the cache.
func TestPackedPromotionsLoseNothing(t *testing.T) {
	g := NewWithT(t)
	fill := filler()
	s := NewStripper(testclock.NewFakePassiveClock(time.Unix(1<<32, 0)))
	var cached []client.Object
	var wanted []*capstanv1.Promotion
	for i := range 3000 {
		p := &capstanv1.Promotion{}
		if i%3 > 0 { // Two of three have much in common with the one before.
			p = wanted[i-1].DeepCopy()
			fill.Fill(&p.ObjectMeta.Name)
			fill.Fill(&p.Spec.Number)
			if i%5 > 0 {
				p.Spec.Number %= 1 << 31
			}
			if i%3 == 1 {
				p.Name = fmt.Sprintf("web-prod-%d", p.Spec.Number)
				p.Status.Message = "every target runs " + p.Spec.Revision + revisionMark[i%2:]
			}
			fill.Fill(&p.UID)
			fill.Fill(&p.Spec.Source)
			fill.Fill(&p.Status.Attempt)
			fill.Fill(&p.Status.CarriedOutTime)
			fill.Fill(&p.Status.GatesCloseTime)
			fill.Fill(&p.Status.GatesOpenTime)
		} else {
			fill.Fill(p)
		}
		p.Status.Phase = []capstanv1.PromotionPhase{capstanv1.PhaseSucceeded, capstanv1.PhaseSuperseded}[i%2]
		p.Status.ObservedGeneration, p.Status.FinishTime, p.DeletionTimestamp = p.Generation, &metav1.Time{Time: time.Unix(int64(i), 0)}, nil
		p.Status.FormerStartedAt, p.Status.FormerFinishedAt = nil, nil //nolint:staticcheck // They are of an earlier version.
		p.Status.Withdrawn, p.ManagedFields = true, nil
		want := p.DeepCopy()
		s.strip(want)
		cached, wanted = append(cached, s.Strip(p)), append(wanted, want)
	}
	for range 2 {
		for i, o := range cached {
			g.Expect(o).To(BeAssignableToTypeOf(&packed{}))
			for _, accessor := range []func(metav1.Object) any{
				func(o metav1.Object) any { return o.GetNamespace() + "/" + o.GetName() },
				func(o metav1.Object) any { return o.GetUID() },
				func(o metav1.Object) any { return o.GetResourceVersion() },
				func(o metav1.Object) any { return o.GetGeneration() },
				func(o metav1.Object) any { return o.GetCreationTimestamp() },
				func(o metav1.Object) any { return o.GetLabels() },
				func(o metav1.Object) any { return o.GetAnnotations() },
				func(o metav1.Object) any { return o.GetOwnerReferences() },
				func(o metav1.Object) any { return o.GetFinalizers() },
			} {
				g.Expect(equality.Semantic.DeepEqual(accessor(o), accessor(wanted[i]))).To(BeTrue(), "%v, not %v", accessor(o), accessor(wanted[i]))
			}
			got, ok := o.DeepCopyObject().(*capstanv1.Promotion)
			g.Expect(ok).To(BeTrue())
			g.Expect(equality.Semantic.DeepEqual(got, wanted[i])).To(BeTrue(), "%d: %+v, not %+v", i, got, wanted[i])
			change(got)
		}
	}
}

// change changes all memory of a Promotion that a copy could share.
func change(p *capstanv1.Promotion) {
	for _, texts := range []map[string]string{p.Labels, p.Annotations} {
		for key := range texts {
			texts[key] = "changed"
		}
	}
	if p.Spec.From != nil {
		for _, texts := range [][]string{p.Spec.From.Revisions, p.Spec.From.Targets} {
			for i := range texts {
				texts[i] = "changed"
			}
		}
	}
	if p.Spec.Approval != nil {
		p.Spec.Approval.By = "changed"
	}
	if p.Status.Approval != nil {
		p.Status.Approval.By = "changed"
	}
	if p.Spec.Strategy.PullRequest != nil {
		p.Spec.Strategy.PullRequest.URL = "changed"
	}
	for _, at := range []*metav1.Time{p.Status.StartTime, p.Status.FinishTime, p.Status.CarriedOutTime, p.Status.GatesCloseTime, p.Status.GatesOpenTime} {
		if at != nil {
			at.Time = time.Unix(1, 0)
		}
	}
	for i := range p.Finalizers {
		p.Finalizers[i] = "changed"
	}
}

// Promotions of a series share what they have in common.
func TestPackedPromotionsAreSmall(t *testing.T) {
	g := NewWithT(t)
	g.Expect(int(unsafe.Sizeof(packed{}))).To(BeNumerically("<=", 144))
	s := NewStripper(testclock.NewFakePassiveClock(time.Unix(1<<32, 0)))
	var first *packed
	for number := range int64(5) {
		p := settled(number + 1)
		p.UID, p.ResourceVersion, p.CreationTimestamp = uuid.NewUUID(), "4711", *p.Status.StartTime
		p.Spec.Revision, p.Spec.Source.Sequence, p.Spec.From.Sequence = p.Name, number, number
		p.Status.Message = "every target runs " + p.Spec.Revision
		k, ok := s.Strip(p).(*packed)
		g.Expect(ok).To(BeTrue())
		if first == nil {
			first = k
		}
		g.Expect(k.Promotion).To(BeIdenticalTo(first.Promotion))
		g.Expect(k.common).To(BeIdenticalTo(first.common))
	}
	g.Expect(first.Promotion.UID).To(BeEmpty())
	g.Expect(first.Promotion.ResourceVersion).To(BeEmpty())
	g.Expect(first.common.name).To(HaveSuffix("-"))

	other := settled(1)
	other.Name, other.Spec.Environment, other.Spec.Source.Environment = "web-other-1", "other", "prod"
	k, ok := s.Strip(other).(*packed)
	g.Expect(ok).To(BeTrue())
	g.Expect(k.Promotion).To(BeIdenticalTo(first.Promotion), "also with the promotions into another environment")
}

func TestSettledTime(t *testing.T) {
	g := NewWithT(t)
	s := NewStripper(testclock.NewFakePassiveClock(time.Unix(1<<32, 0)))
	for name, at := range map[string]time.Time{
		"as the API server stores it": time.Unix(1_700_000_000, 0),
		"with parts of a second":      time.Unix(1_700_000_000, 1),
		"before 1970":                 time.Unix(-1, 0),
	} {
		p := settled(1)
		p.Status.FinishTime = &metav1.Time{Time: at}
		for _, o := range []client.Object{p, s.Strip(p.DeepCopy())} {
			ended, ok := SettledTime(o)
			g.Expect(ok).To(BeTrue(), name)
			g.Expect(ended).To(BeTemporally("==", at), name)
		}
	}
	failed := settled(1)
	failed.Status.Phase = capstanv1.PhaseFailed
	for _, o := range []client.Object{failed, &capstanv1.ClusterConnection{}} {
		_, ok := SettledTime(o)
		g.Expect(ok).To(BeFalse())
	}
}

// The removal of managed fields changes nothing for readers of the cache; every other update does.
func TestUnchanged(t *testing.T) {
	g := NewWithT(t)
	s := NewStripper(testclock.NewFakePassiveClock(time.Unix(1<<32, 0)))
	update := func(change func(*capstanv1.Promotion)) (before, after client.Object) {
		p := settled(1)
		p.ResourceVersion = "7"
		before = s.Strip(p)
		s.Strip(settled(2))
		p = settled(1)
		p.ResourceVersion = "8"
		change(p)
		return before, s.Strip(p)
	}
	g.Expect(Unchanged(update(func(p *capstanv1.Promotion) { p.ManagedFields = nil }))).To(BeTrue())
	for name, change := range map[string]func(*capstanv1.Promotion){
		"an annotation": func(p *capstanv1.Promotion) { p.Annotations["team"] = "one" },
		"a label":       func(p *capstanv1.Promotion) { p.Labels["team"] = "one" },
		"the message":   func(p *capstanv1.Promotion) { p.Status.Message = "another" },
		"a retry":       func(p *capstanv1.Promotion) { p.Spec.Retry++; p.Generation++ },
		"the UID":       func(p *capstanv1.Promotion) { p.UID = uuid.NewUUID() },
	} {
		g.Expect(Unchanged(update(change))).To(BeFalse(), name)
	}
	g.Expect(Unchanged(&capstanv1.Promotion{}, &capstanv1.Promotion{})).To(BeFalse())
}
